//! The data plane: relay, files in the making, transfers
