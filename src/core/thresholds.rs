//! The fields of `P:config`: names, ranges, parsing (design section 3.1).
