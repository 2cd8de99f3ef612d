//! When a rank, and so a worker, is busy (design section 3.1).
