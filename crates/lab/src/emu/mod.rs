//! The pure, time-driven emulation of links and networks.
