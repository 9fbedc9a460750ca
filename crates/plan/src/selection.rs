//! Parallel path selection (UKAIRO §3.2.1) as a pure state machine.
