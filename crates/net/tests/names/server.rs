//! A name server that knows one name and records who asked for it.

use hickory_resolver::proto::{
    op::{Message, ResponseCode},
    rr::{RData, Record, RecordType, rdata},
};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    thread,
};

/// The name, which has only an IPv4 address.
pub const NAME: &str = "www.example";

/// A running server, and the queries it has received.
#[derive(Clone)]
pub struct Server {
    pub at: SocketAddr,
    askers: Arc<Mutex<Vec<(IpAddr, RecordType)>>>,
}

impl Server {
    /// Starts a server at `address`, which says until the process ends that [`NAME`] is at `host`.
    pub fn start(address: &str, host: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        let at = socket.local_addr().unwrap();
        let askers = Arc::new(Mutex::new(Vec::new()));
        let server = Self { at, askers: Arc::clone(&askers) };
        thread::spawn(move || {
            let mut question = [0; 1_232];
            while let Ok((n, from)) = socket.recv_from(&mut question) {
                let question = Message::from_vec(&question[..n]).unwrap();
                askers.lock().unwrap().push((from.ip(), question.queries[0].query_type()));
                let answer = answer(&question, host);
                socket.send_to(&answer.to_vec().unwrap(), from).unwrap();
            }
        });
        server
    }

    /// The sources of queries of this kind, once for each query.
    pub fn askers(&self, kind: RecordType) -> Vec<IpAddr> {
        let askers = self.askers.lock().unwrap();
        askers.iter().filter(|(_, asked)| *asked == kind).map(|(ip, _)| *ip).collect()
    }
}

fn answer(question: &Message, host: Ipv4Addr) -> Message {
    let asked = &question.queries[0];
    let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
    answer.add_query(asked.clone());
    match asked.name().to_ascii().trim_end_matches('.') {
        NAME if asked.query_type() == RecordType::A => {
            let address = RData::A(rdata::A(host));
            answer.add_answer(Record::from_rdata(asked.name().clone(), 60, address));
        }
        NAME => {}
        _ => answer.metadata.response_code = ResponseCode::NXDomain,
    }
    answer
}
