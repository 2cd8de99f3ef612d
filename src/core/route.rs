//! Which eligible worker is chosen (design section 3.6).
