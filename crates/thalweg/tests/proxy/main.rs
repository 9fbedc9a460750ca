//! `thalweg proxy` and `thalweg run`, used by unmodified programs: curl, wget, aria2, git, apt, Chromium. Tests of
//! programs that are not installed are skipped, with a printed reason.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod apt;
mod browser;
mod capped_get;
mod curl;
mod downloads;
mod files;
mod get_interfaces;
#[allow(dead_code, reason = "shared with the tests of the mesh")]
#[path = "../mesh/host.rs"]
mod host;
#[path = "../mesh/in_lab.rs"]
mod in_lab;
mod lab;
mod odd_interfaces;
mod probes;
mod run;
mod running_proxy;
#[path = "../mesh/second_interface.rs"]
mod second_interface;
mod start_and_end;
mod transparent;
#[path = "../mesh/two_links.rs"]
mod two_links;
mod uplinks;
mod vpn;
