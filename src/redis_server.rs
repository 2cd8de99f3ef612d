//! A private Redis server, for `demo` and the tests.
