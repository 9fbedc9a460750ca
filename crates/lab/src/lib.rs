//! An emulated Internet for real processes on one machine
