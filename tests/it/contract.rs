//! What the product promises (design sections 3, 5 and 10), on running processes.

mod admin;
mod barrier;
mod fields;
mod gate;
mod modes;
mod predicate;
mod reference;
mod sequential;
