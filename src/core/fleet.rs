//! The sequential model of one model's shared state: the reference for the Lua scripts.
