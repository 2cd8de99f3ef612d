//! `make bench`: the Redis rows of the speed table.
fn main() {}
