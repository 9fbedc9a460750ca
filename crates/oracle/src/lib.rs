//! The control plane: tokens, members, the signed roster, and the API that serves them.
//!
//! Never on the data path: nodes go on from their cached roster without it.
