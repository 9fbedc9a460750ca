//! Tests of the plain relay and of the mesh's relay.

mod gate;
mod legs;
mod mesh;
mod plain;
mod refusals;
mod scene;
