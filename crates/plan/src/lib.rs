//! From estimates to plans: graphs and path selection (pure)
