//! `tidegate mock-engine`: an OpenAI-compatible engine without a GPU.
