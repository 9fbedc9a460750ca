//! Linux I/O: routes, dialling, sockets
