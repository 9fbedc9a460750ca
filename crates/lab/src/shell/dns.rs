//! The lab's DNS server: one thread answers every host at the host's own 127.0.0.53.

use anyhow::Result;
use rustix::event::epoll;
use simple_dns::{
    CLASS, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE,
    rdata::{A, AAAA, RData},
};
use std::{
    collections::HashMap,
    net::{IpAddr, UdpSocket},
    thread,
};

/// How long an answer may be cached, seconds: names may move within a run.
const TTL: u32 = 1;

/// The addresses of every name in lower case.
pub type NameTable = HashMap<String, Vec<IpAddr>>;

/// Starts the thread; it ends with the process.
pub fn start(sockets: Vec<UdpSocket>, names: NameTable) -> Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (i, socket) in sockets.iter().enumerate() {
        socket.set_nonblocking(true)?;
        epoll::add(&poll, socket, epoll::EventData::new_u64(i as u64), epoll::EventFlags::IN)?;
    }
    thread::Builder::new().name("names".into()).spawn(move || {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let _again = epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None);
            for event in &events {
                serve(&sockets[event.data.u64() as usize], &names);
            }
        }
    })?;
    Ok(())
}

fn serve(socket: &UdpSocket, names: &NameTable) {
    let mut question = [0; 1_232]; // the EDNS buffer size recommended by DNS flag day 2020
    if let Ok((n, from)) = socket.recv_from(&mut question)
        && let Some(answer) = answer(&question[..n], names)
    {
        // The client repeats its question if the answer is lost.
        let _lost = socket.send_to(&answer, from);
    }
}

/// Answers A, AAAA and ANY. For other types of known names the answer is empty (NODATA); for unknown names it is
/// NXDOMAIN.
fn answer(bytes: &[u8], names: &NameTable) -> Option<Vec<u8>> {
    let query = Packet::parse(bytes).ok()?;
    let question = query.questions.first()?;
    let mut reply = Packet::new_reply(query.id());
    reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::RECURSION_AVAILABLE);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    let name = question.qname.to_string().to_lowercase();
    match names.get(&name) {
        None => *reply.rcode_mut() = RCODE::NameError,
        Some(addresses) => {
            let wanted = addresses.iter().filter(|a| asks_for(question.qtype, a));
            let record = |a: &IpAddr| {
                ResourceRecord::new(question.qname.clone(), CLASS::IN, TTL, record_data(*a))
            };
            reply.answers.extend(wanted.map(record));
        }
    }
    reply.questions.push(question.clone());
    reply.build_bytes_vec().ok()
}

fn asks_for(qtype: QTYPE, address: &IpAddr) -> bool {
    match qtype {
        QTYPE::TYPE(TYPE::A) => address.is_ipv4(),
        QTYPE::TYPE(TYPE::AAAA) => address.is_ipv6(),
        other => other == QTYPE::ANY,
    }
}

fn record_data(address: IpAddr) -> RData<'static> {
    match address {
        IpAddr::V4(a) => RData::A(A::from(a)),
        IpAddr::V6(a) => RData::AAAA(AAAA::from(a)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::{Name, QCLASS, Question};

    fn ask(name: &str, qtype: TYPE) -> (RCODE, usize) {
        let names = NameTable::from([(
            "server".to_owned(),
            vec!["10.1.0.2".parse().unwrap(), "fd54:1::2".parse().unwrap()],
        )]);
        let mut query = Packet::new_query(7);
        let name = Name::new_unchecked(name);
        query.questions.push(Question::new(name, qtype.into(), QCLASS::CLASS(CLASS::IN), false));
        let bytes = answer(&query.build_bytes_vec().unwrap(), &names).unwrap();
        let reply = Packet::parse(&bytes).unwrap();
        assert_eq!(reply.id(), 7);
        (reply.rcode(), reply.answers.len())
    }

    #[test]
    fn names_resolve_by_family_and_unknown_names_get_nxdomain() {
        assert_eq!(ask("server", TYPE::A), (RCODE::NoError, 1));
        assert_eq!(ask("SERVER", TYPE::AAAA), (RCODE::NoError, 1));
        assert_eq!(ask("server", TYPE::MX), (RCODE::NoError, 0));
        assert_eq!(ask("elsewhere", TYPE::A), (RCODE::NameError, 0));
        assert_eq!(answer(&[1, 2, 3], &NameTable::new()), None);
    }
}
