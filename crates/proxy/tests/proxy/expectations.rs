//! `Expect: 100-continue` (RFC 9110 §10.1.1) and other interim answers (§15.2).

use crate::scene::{Origin, Scene, field, ok, status, text};

const EXPECTS: &str = "Content-Length: 4\r\nExpect: 100-continue\r\n";

#[tokio::test]
async fn the_content_waits_for_the_origins_100_continue() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.ask("POST", "/", EXPECTS)).await;
    let mut at = origin.accept().await;
    assert_eq!(field(&at.head().await, "expect"), Some("100-continue"));
    at.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(status(&program.head().await), 100);
    program.send("data").await;
    assert_eq!(text(at.take(4).await), "data");
    at.send(ok("done")).await;
    assert_eq!(text(program.answer().await.1), "done");
}

#[tokio::test]
async fn a_refusal_reaches_the_program_before_it_sends_anything() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.ask("POST", "/", EXPECTS)).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno").await;
    let (head, content) = program.answer().await;
    assert_eq!((status(&head), text(content)), (413, "no".to_owned()));
}

#[tokio::test]
async fn an_origin_that_never_says_continue_gets_the_content_all_the_same() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.ask("POST", "/", EXPECTS) + "data").await;
    let mut at = origin.accept().await;
    at.head().await;
    assert_eq!(text(at.take(4).await), "data");
    at.send(ok("done")).await;
    // The proxy may send its own 100 before it.
    let mut head = program.head().await;
    if status(&head) == 100 {
        head = program.head().await;
    }
    assert_eq!(status(&head), 200);
}

#[tokio::test]
async fn interim_answers_are_passed_on() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(origin.get("/", "")).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nKeep-Alive: 5\r\n\r\n")
        .await;
    let hints = program.head().await;
    assert_eq!((status(&hints), field(&hints, "keep-alive")), (103, None));
    assert_eq!(field(&hints, "link"), Some("</a.css>; rel=preload"));
    // Two at once, and the final answer in the same packet.
    let two = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <b>\r\n\r\n";
    at.send(two.to_owned() + &ok("end")).await;
    assert_eq!(status(&program.head().await), 102);
    assert_eq!(status(&program.head().await), 103);
    assert_eq!(text(program.answer().await.1), "end");
}

#[tokio::test]
async fn a_program_of_http_1_0_sees_no_interim_answer() {
    let (scene, origin) = (Scene::new().await, Origin::new().await);
    let mut program = scene.program().await;
    program.send(format!("GET {} HTTP/1.0\r\n\r\n", origin.url("/"))).await;
    let mut at = origin.accept().await;
    at.head().await;
    at.send("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n".to_owned() + &ok("end")).await;
    assert_eq!(status(&program.head().await), 200);
}
