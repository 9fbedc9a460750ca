//! Connections to origins on which a user has authenticated, and the separation of users.

use crate::scene::{Origin, Peer, Scene, field, ok, status, text};
use std::{
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    process::{Command, Stdio},
};
use tokio::task::spawn_blocking;

/// Sends a request of this program and the answer over this connection of the origin. Returns the head that the origin
/// received.
async fn exchange(program: &mut Peer, ask: String, origin: &mut Peer, answer: &str) -> String {
    program.send(ask).await;
    let head = origin.head().await;
    origin.send(answer).await;
    program.answer().await;
    head
}

const ASKS: &str = "HTTP/1.1 401 No\r\nWWW-Authenticate: NTLM\r\nContent-Length: 0\r\n\r\n";

#[tokio::test]
async fn an_authenticated_connection_serves_only_its_program() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut alice = scene.program().await;
    alice.send(origin.get("/mail", "")).await;
    let mut hers = origin.accept().await;
    hers.head().await;
    hers.send(ASKS).await;
    assert_eq!(status(&alice.answer().await.0), 401);
    for (proof, answer) in
        [("Authorization: NTLM t1\r\n", ASKS), ("Authorization: NTLM t3\r\n", &ok("m"))]
    {
        let head = exchange(&mut alice, origin.get("/mail", proof), &mut hers, answer).await;
        assert!(field(&head, "authorization").is_some_and(|said| said.starts_with("NTLM")));
    }
    // Another program's request uses a separate connection, although Alice's is idle.
    let mut mallory = scene.program().await;
    mallory.send(origin.get("/mail", "")).await;
    let mut other = origin.accept().await;
    other.head().await;
    other.send(ok("nothing")).await;
    assert_eq!(text(mallory.answer().await.1), "nothing");
    // Alice's connection stays usable for her, and ends with her program's connection.
    exchange(&mut alice, origin.get("/mail/2", ""), &mut hers, &ok("m")).await;
    drop(alice);
    assert_eq!(hers.rest().await, b"");
}

#[tokio::test]
async fn unsolicited_authentication_pins_the_connection_too() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut alice = scene.program().await;
    alice.send(origin.get("/", "Authorization: Negotiate YII=\r\n")).await;
    let mut hers = origin.accept().await;
    hers.head().await;
    hers.send(ok("hers")).await;
    assert_eq!(text(alice.answer().await.1), "hers");
    let mut mallory = scene.program().await;
    mallory.send(origin.get("/", "")).await;
    let mut other = origin.accept().await;
    other.head().await;
    other.send(ok("his")).await;
    assert_eq!(text(mallory.answer().await.1), "his");
}

#[tokio::test]
async fn programs_of_one_user_share_unauthenticated_connections() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut one = scene.program().await;
    one.send(origin.get("/1", "Authorization: Basic eA==\r\n")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send(ok("1")).await;
    one.answer().await;
    let mut other = scene.program().await;
    exchange(&mut other, origin.get("/2", ""), &mut at, &ok("2")).await;
}

/// A user of this machine without any sockets here.
const NOBODY: u32 = 65_534;

#[tokio::test]
async fn users_do_not_share_connections() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped: only root can have another user's program ask");
        return;
    }
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut own = scene.program().await;
    own.send(origin.get("/", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send(ok("own")).await;
    own.answer().await;
    let ask = origin.get("/", "Connection: close\r\n");
    let (ip, port) = (scene.at.ip(), scene.at.port());
    let script = format!("exec 3<>/dev/tcp/{ip}/{port}; printf %s \"$1\" >&3; cat <&3");
    let mut bash = Command::new("bash");
    bash.args(["-c", &script, "bash", &ask]).uid(NOBODY).gid(NOBODY).current_dir("/");
    bash.stdin(Stdio::null()).stdout(Stdio::piped());
    let asked = spawn_blocking(move || bash.output().unwrap());
    let mut other = origin.accept().await;
    other.head().await;
    other.send(ok("other")).await;
    let output = asked.await.unwrap();
    assert!(text(output.stdout).ends_with("other"), "{:?}", output.stderr);
}
