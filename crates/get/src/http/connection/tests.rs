//! Tests: connections whose answers are dropped, and redirects into this network.

use super::*;
use http_body_util::{BodyExt, StreamBody};
use hyper::{body::Frame, service::service_fn};
use std::{convert::Infallible, pin::Pin, task::Poll};
use thalweg_net::Dialer;
use tokio::{
    net::TcpListener,
    sync::mpsc::{self, Sender},
};

/// An endless answer that reports when it is dropped.
struct Endless(Sender<()>);

impl futures_util::Stream for Endless {
    type Item = Result<Frame<Bytes>, Infallible>;
    fn poll_next(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; 1 << 14])))))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        _ = self.0.try_send(());
    }
}

/// Serves endless answers to one connection; returns the client's end of it.
async fn served(http2: bool, dropped: Sender<()>) -> Connection {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap().into();
    tokio::spawn(async move {
        let io = TokioIo::new(listener.accept().await.unwrap().0);
        let service = service_fn(move |request: Request<Incoming>| {
            assert_eq!(request.uri().authority().is_some(), http2);
            let body = StreamBody::new(Endless(dropped.clone()));
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        // The client closes the connection.
        _ = if http2 {
            let executor = Tasks::default();
            hyper::server::conn::http2::Builder::new(executor).serve_connection(io, service).await
        } else {
            hyper::server::conn::http1::Builder::new().serve_connection(io, service).await
        };
    });
    let stream = Dialer::default().dial(&Route::direct(), &to).await.unwrap();
    let wire = Wire::plain(stream.closed_on_drop());
    let made = if http2 {
        Connection::http2(wire, AllowedUrls::All).await
    } else {
        Connection::http1(wire, AllowedUrls::All).await
    };
    made.unwrap()
}

async fn ask(connection: &mut Connection) -> Incoming {
    let request = Request::get("/x").header(header::HOST, "a.example:81");
    let mut body = connection.ask(request.body(Empty::new()).unwrap()).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    body
}

#[tokio::test]
async fn http2_stops_a_dropped_answer_and_the_connection_is_reused() {
    let (sender, mut dropped) = mpsc::channel(4);
    let mut connection = served(true, sender).await;
    for _ in 0..3 {
        drop(ask(&mut connection).await);
        dropped.recv().await.unwrap();
        assert!(connection.is_open());
    }
}

#[tokio::test]
async fn http1_is_closed_with_a_dropped_answer() {
    let (sender, mut dropped) = mpsc::channel(4);
    let mut connection = served(false, sender).await;
    drop(ask(&mut connection).await);
    dropped.recv().await.unwrap();
    let request = Request::new(Empty::new());
    assert!(connection.ask(request).await.is_err());
    assert!(!connection.is_open());
}

#[tokio::test]
async fn dropping_a_connection_ends_its_answers() {
    for http2 in [false, true] {
        let (sender, mut dropped) = mpsc::channel(4);
        let mut connection = served(http2, sender).await;
        let mut body = ask(&mut connection).await;
        drop(connection);
        dropped.recv().await.unwrap();
        let end = loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                end => break end,
            }
        };
        assert!(matches!(end, Some(Err(_))), "a cut answer looks complete");
    }
}

#[tokio::test]
async fn a_connection_into_this_network_does_not_serve_redirects_of_other_sites() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = |text: &str| HttpUrl::parse(text).unwrap();
    let here = url(&format!("http://127.0.0.1:{port}/x"));
    let direct = Route::direct();
    let given = Connection::open(&HttpSettings::default(), &direct, &here).await.unwrap();
    let from_name = |name: &str| url(name).join(here.to_string()).unwrap();
    assert!(given.serves(&here) && !given.serves(&from_name("http://a.example/")));
    let local = from_name("http://localhost/");
    let redirected = Connection::open(&HttpSettings::default(), &direct, &local).await.unwrap();
    assert!(redirected.serves(&here) && redirected.serves(&local));
    assert!(!redirected.serves(&from_name("http://a.example/")));
    // A name that does not exist (RFC 6761 §6.4).
    let outside = from_name("http://nothing.invalid/");
    let refused = Connection::open(&HttpSettings::default(), &direct, &outside).await.err();
    assert!(matches!(refused, Some(PathError::Redirect(_))));
}
