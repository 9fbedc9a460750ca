//! Nodes `n1`, `n2`, … (keys 1, 2, …) that relay and serve files, and a roster of them.

use crate::members::{ANYWHERE, config, dialer, member, membership, nothing, served};
pub use crate::members::{key, name, signed};
use futures_util::future::BoxFuture;
use std::{
    net::SocketAddr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
};
use tempfile::TempDir;
use thalweg_base::{
    budget::Budget,
    log::{Event, Log},
};
use thalweg_files::{AcceptingDirectory, Files, OfferedDirectory, Settings, remote::Remote};
use thalweg_mesh::{Membership, MeshPeer, member_dialer::MemberDialer, service::MemberService};
use thalweg_net::channel::Channel;
use thalweg_node::daemon::{Daemon, Node as Served, Services};
use thalweg_relay::{MeshRelay, RelayConfig, RelayMetrics};
use thalweg_wire::mesh::MemberPattern;
use thalweg_wire::{
    Signer as _,
    mesh::{Member, Name, Role},
    object::{Entry, FileRef, Kind, ListRequest},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

/// A running node; it and its tasks end when it is dropped.
pub struct Node {
    pub n: u8,
    pub at: SocketAddr,
    pub membership: Membership,
    /// The directory that it offers.
    pub data: PathBuf,
    /// The directory where it accepts files.
    pub inbox: PathBuf,
    pub dir: TempDir,
    log: Receiver<Event>,
    _tasks: JoinSet<()>,
}

impl Node {
    /// Starts a node that offers `data` to these members, and accepts files of theirs into `inbox`.
    pub async fn start(n: u8, members: &[&str]) -> Self {
        Self::limited(n, members, 8).await
    }

    /// The same, with this many channels at a time.
    pub async fn limited(n: u8, members: &[&str], max_channels: usize) -> Self {
        Self::with_accepting(n, members, AcceptingDirectory::default(), max_channels).await
    }

    /// A node that lets all members replace and remove what is in its inbox.
    pub async fn lenient(n: u8) -> Self {
        let accept =
            AcceptingDirectory { replace: true, remove: true, ..AcceptingDirectory::default() };
        Self::with_accepting(n, &["*"], accept, 8).await
    }

    /// A node whose inbox all members may use with these rights.
    pub async fn accepting(n: u8, accept: AcceptingDirectory) -> Self {
        Self::with_accepting(n, &["*"], accept, 8).await
    }

    /// A node that also lets all members set owners and leave symbolic links that point anywhere.
    pub async fn trusting(n: u8) -> Self {
        let accept = AcceptingDirectory {
            replace: true,
            remove: true,
            owners: true,
            links: true,
            ..AcceptingDirectory::default()
        };
        Self::with_accepting(n, &["*"], accept, 8).await
    }

    /// A node that lets all members remove and replace what is in its inbox, but not in `inbox/narrow`.
    pub async fn nested(n: u8) -> Self {
        Self::lenient_with(n, |inbox, settings| {
            let (path, members) = (inbox.join("narrow"), vec!["*".parse().unwrap()]);
            std::fs::create_dir(&path).unwrap();
            settings.accept.push(AcceptingDirectory {
                path,
                members,
                ..AcceptingDirectory::default()
            });
        })
        .await
    }

    /// A node that lets all members remove and replace what is in its inbox, with these settings.
    pub async fn lenient_with(n: u8, change: impl FnOnce(&Path, &mut Settings)) -> Self {
        let accept =
            AcceptingDirectory { replace: true, remove: true, ..AcceptingDirectory::default() };
        Self::with_settings(n, &["*"], accept, 8, change).await
    }

    async fn with_accepting(
        n: u8,
        members: &[&str],
        accept: AcceptingDirectory,
        max_channels: usize,
    ) -> Self {
        Self::with_settings(n, members, accept, max_channels, |_, _| {}).await
    }

    async fn with_settings(
        n: u8,
        members: &[&str],
        accept: AcceptingDirectory,
        max_channels: usize,
        change: impl FnOnce(&Path, &mut Settings),
    ) -> Self {
        let dir = TempDir::new().unwrap();
        let [data, inbox, state] = ["data", "inbox", "state"].map(|d| dir.path().join(d));
        for made in [&data, &inbox, &state] {
            std::fs::create_dir(made).unwrap();
        }
        let membership = membership();
        let (log, queue) = Log::to_queue();
        let members: Vec<MemberPattern> = members.iter().map(|m| m.parse().unwrap()).collect();
        let accepting =
            AcceptingDirectory { path: inbox.clone(), members: members.clone(), ..accept };
        let mut settings = Settings {
            offer: vec![OfferedDirectory { path: data.clone(), members }],
            accept: vec![accepting],
            max_channels,
            ..Settings::default()
        };
        change(&inbox, &mut settings);
        let files =
            Files::new(&settings, &state, key(n).id(), membership.clone(), log.clone()).unwrap();
        Self::serving(n, Arc::new(files), dir, membership, (log, queue)).await
    }

    /// A node that sends what a test specifies.
    pub async fn scripted(n: u8, script: Script) -> Self {
        let dir = TempDir::new().unwrap();
        let membership = membership();
        Self::serving(n, Arc::new(script), dir, membership, Log::to_queue()).await
    }

    async fn serving(
        n: u8,
        files: Arc<dyn MemberService>,
        dir: TempDir,
        membership: Membership,
        (log, queue): (Log, Receiver<Event>),
    ) -> Self {
        let [data, inbox] = ["data", "inbox"].map(|d| dir.path().join(d));
        let mut registry = Default::default();
        let relay = RelayConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        let metrics = RelayMetrics::register(&mut registry);
        let budget = Arc::new(Budget::new());
        let (own, ours) = (key(n).id(), membership.clone());
        let relay = MeshRelay::new(own, relay, ours, budget, metrics, log.clone()).unwrap();
        let services = Services { relay: Some(Arc::new(relay)), files: Some(files), ..nothing() };
        let served = Served { registry, log, ..served(n, &membership, services) };
        let daemon = Daemon::bind(config(ANYWHERE, dir.path()), served).await.unwrap();
        let at = daemon.local_addrs()[0];
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            daemon.run(std::future::pending(), std::future::pending()).await;
        });
        Self { n, at, membership, data, inbox, dir, log: queue, _tasks: tasks }
    }

    pub fn member(&self) -> Member {
        let member = member(self.n, Some(self.at), &[Role::Client, Role::Relay]);
        Member { tags: [format!("tag{}", self.n).parse().unwrap()].into(), ..member }
    }

    /// Puts a file into the offered directory.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.data.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// The absolute path, as a root of a request.
    pub fn root(&self, below: &str) -> Vec<u8> {
        [self.data.as_os_str().as_bytes(), below.as_bytes()].concat()
    }

    /// Opens files of others as this host's command line.
    pub fn dialer(&self) -> MemberDialer {
        dialer(self.n, &key(self.n + 100), &self.membership)
    }

    /// Opens the files of `to`, through these relays.
    pub async fn open(&self, to: &Self, via: &[&Self]) -> Remote {
        let via: Vec<Name> = via.iter().map(|node| name(node.n)).collect();
        Remote::open(&self.dialer(), &name(to.n), &via).await.unwrap()
    }

    /// The next line of its log that contains this text.
    pub async fn line(&self, text: &str) -> String {
        loop {
            match self.log.try_recv() {
                Ok(event) if event.to_string().contains(text) => return event.to_string(),
                Ok(_) => {}
                Err(TryRecvError::Empty) => tokio::task::yield_now().await,
                Err(TryRecvError::Disconnected) => panic!("the log ended without `{text}`"),
            }
        }
    }
}

/// Answers any request with these bytes.
#[derive(Clone, Debug)]
pub struct Script(pub Vec<u8>);

impl MemberService for Script {
    fn serve(
        &self,
        mut channel: Channel<TcpStream>,
        _: MeshPeer,
        _: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let said = self.0.clone();
        Box::pin(async move {
            let mut head = [0; 4];
            // However a connection ends, that is what this node does.
            while channel.read_exact(&mut head).await.is_ok() {
                let mut body = vec![0; u32::from_be_bytes(head) as usize];
                _ = channel.read_exact(&mut body).await;
                _ = channel.write_all(&said).await;
                _ = channel.flush().await;
            }
        })
    }

    fn report(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Gives all nodes a roster of them.
pub fn introduce(nodes: &[&Node]) {
    let signed = signed(nodes.len() as u64, nodes.iter().map(|node| node.member()).collect());
    for node in nodes {
        node.membership.offer(&signed).unwrap();
    }
}

/// `n1`, which offers its files to all, `n2` and `n3`.
pub async fn three() -> [Node; 3] {
    let nodes =
        [Node::start(1, &["*"]).await, Node::start(2, &[]).await, Node::start(3, &[]).await];
    introduce(&[&nodes[0], &nodes[1], &nodes[2]]);
    nodes
}

/// The entries at `roots`, in the order of paths, and the failures.
pub async fn list(
    remote: &mut Remote,
    roots: &[&[u8]],
    exclude: &[&str],
) -> (Vec<Entry>, Vec<(Vec<u8>, String)>) {
    let roots = roots.iter().map(|root| root.to_vec()).collect();
    let exclude = exclude.iter().map(|e| e.as_bytes().to_vec()).collect();
    let mut entries = Vec::new();
    let request = ListRequest { roots, exclude };
    let failures = remote.list(request, |part| entries.extend(part)).await.unwrap();
    // Parents come first, whatever the order is otherwise.
    for (i, entry) in entries.iter().enumerate() {
        let path = Path::new(std::ffi::OsStr::from_bytes(entry.path.as_bytes()));
        let parent = path.parent().map(|p| p.as_os_str().as_bytes());
        let parent = parent.filter(|p| !p.is_empty());
        let before = &entries[..i];
        assert!(
            parent.is_none_or(|parent| before.iter().any(|b| b.path.as_bytes() == parent)),
            "{path:?} before its parent"
        );
    }
    entries.sort_by(|a, b| (a.root, &a.path).cmp(&(b.root, &b.path)));
    (entries, failures.into_iter().map(|(path, why)| (path, why.to_string())).collect())
}

/// The paths of entries.
pub fn names(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.path.to_string()).collect()
}

/// The file of an entry below a root.
pub fn file(root: &[u8], entry: &Entry) -> FileRef {
    let Kind::File { snapshot } = entry.kind else { panic!("{entry:?} is no file") };
    FileRef { root: root.to_vec(), path: entry.path.clone(), snapshot }
}

/// The only file at this root.
pub async fn the_file(remote: &mut Remote, root: &[u8]) -> FileRef {
    let (entries, failures) = list(remote, &[root], &[]).await;
    assert_eq!((entries.len(), failures.len()), (1, 0), "{failures:?}");
    file(root, &entries[0])
}
