//! `tidegate demo`: a whole fleet in one command.
