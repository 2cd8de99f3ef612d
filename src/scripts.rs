//! The Lua scripts and their typed calls. Only this module knows script text.

/// An operation of `core::op` that is a script.
pub trait Operation {
    /// Its reply.
    type Reply: Send + 'static;
}
