//! What the documents promise is what is there.
