//! The relay's tests: the plain one, the mesh's, and arbitrary input.

mod gate;
mod legs;
mod mesh;
mod plain;
mod refusals;
mod scene;
