//! One node of a tree of plain TCP that stores and forwards (ROMA §III-A): it writes each piece to its file and to
//! every child before it reads the next one.

use anyhow::Context as _;
use std::{
    fs::File,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

/// Bytes read and written at a time: a symbol of a cast.
const PIECE: usize = 16 << 10;

/// The longest wait until a child listens.
const STARTS: Duration = Duration::from_secs(10);

/// Arguments of `thalweg-bench load cast copy`.
#[derive(clap::Args)]
pub struct Args {
    /// Address at which the parent connects (default: none, the file is the source)
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Addresses of the children
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    to: Vec<String>,
    /// The file
    #[arg(long)]
    file: PathBuf,
}

/// Copies until the file or the parent's connection ends.
///
/// # Errors
/// When a connection or a file operation fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // Listens before it connects, because its parent may connect at once.
    let listener = args.listen.map(TcpListener::bind).transpose()?;
    let mut children = Vec::new();
    for child in &args.to {
        children.push(connect(child).with_context(|| format!("cannot reach {child}"))?);
    }
    match listener {
        None => copy(File::open(&args.file)?, io::sink(), &mut children)?,
        Some(listener) => {
            let (parent, _) = listener.accept()?;
            copy(parent, File::create(&args.file)?, &mut children)?;
        }
    }
    Ok(())
}

fn connect(child: &str) -> io::Result<TcpStream> {
    let since = Instant::now();
    loop {
        let address = child.to_socket_addrs()?.find(SocketAddr::is_ipv4);
        let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
        match TcpStream::connect(address) {
            Err(_) if since.elapsed() < STARTS => thread::sleep(Duration::from_millis(20)),
            other => return other,
        }
    }
}

fn copy(mut from: impl Read, mut file: impl Write, children: &mut [TcpStream]) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let n = from.read(&mut piece)?;
        if n == 0 {
            return Ok(());
        }
        file.write_all(&piece[..n])?;
        for child in &mut *children {
            child.write_all(&piece[..n])?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_go_to_the_file_and_to_the_children() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let child = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut end, _) = listener.accept().unwrap();
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        let (sent, mut file) = (bytes.clone(), Vec::new());
        let reading = thread::spawn(move || {
            let mut got = Vec::new();
            end.read_to_end(&mut got).unwrap();
            got
        });
        let mut children = [child];
        copy(&sent[..], &mut file, &mut children).unwrap();
        drop(children);
        assert_eq!(file, bytes);
        assert_eq!(reading.join().unwrap(), bytes);
    }
}
