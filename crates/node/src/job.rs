//! Durable records of transfers, and their events.
