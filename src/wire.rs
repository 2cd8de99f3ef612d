//! Every field name and reply code that the Lua scripts share with this program.
