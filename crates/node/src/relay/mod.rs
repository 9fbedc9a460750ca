//! A SOCKS5 relay.
