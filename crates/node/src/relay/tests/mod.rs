//! The relay's tests: the plain one, the mesh's, and arbitrary input.

mod plain;
