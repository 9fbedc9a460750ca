//! Bytes by purpose.
