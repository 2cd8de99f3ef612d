//! `tidegate mock-engine`: an engine without a GPU.

pub mod model;
