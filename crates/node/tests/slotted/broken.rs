//! A source whose file becomes shorter while it is read fills the part with zeros, and says so after it.

use crate::{
    fake::{Fake, Vice},
    land::Memory,
    methods::bytes,
    scene::{Scene, Sort},
};
use std::{sync::Arc, time::Duration};
use thalweg_files::inventory::{Inventory, MissingFile};
use thalweg_gather::{
    CollectContext,
    fluid::{self, Settings},
    slotted::Scheme,
};
use thalweg_plan::collection::Direct;
use thalweg_wire::object::{FilePath, FileRef, Snapshot};

const SIZE: usize = 3_000_000;

async fn source(vice: Vice) -> (Scene, Inventory, Vec<u8>) {
    let content = bytes(SIZE, 5);
    // No chunk of the content could be taken for zeros.
    assert!(content.chunks(64).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
    let fake = Sort::Fake(Box::new(Fake::source(vice, content.clone())));
    let scene = Scene::new(&[fake, Sort::open(), Sort::open()]).await;
    let snapshot =
        Snapshot { device: 1, inode: 1, size: SIZE as u64, modified_ns: 0, changed_ns: 0 };
    let path = FilePath::new(b"broken".to_vec()).unwrap();
    let file = FileRef { root: b"/data".to_vec(), path, snapshot };
    let files =
        vec![MissingFile { source: 0, file, missing: std::iter::once(0..SIZE as u64).collect() }];
    (scene, Inventory { files }, content)
}

async fn by_the_fluid_plan(context: &CollectContext) {
    let settings = Settings { interval: Some(Duration::from_millis(100)), ..Settings::default() };
    let outcome = fluid::run(context, settings).await.unwrap();
    assert_eq!(outcome.failed, []);
}

fn came_whole(land: &Arc<Memory>, content: &[u8]) {
    assert!(land.is_of(0, content), "zeros landed");
    assert!(land.file(0).as_deref() == Some(content));
    assert_eq!(land.given_up(), []);
}

fn is_given_up(land: &Arc<Memory>, content: &[u8]) {
    assert!(land.is_of(0, content), "zeros landed");
    assert!(land.file(0).is_none());
    let given_up = land.given_up();
    assert!(given_up.iter().all(|(file, why)| file.0 == 0 && why.contains("changed")));
    assert!(!given_up.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_an_interrupted_part_is_kept_and_it_is_requested_again() {
    let (scene, inventory, content) = source(Vice::Breaks).await;
    let (context, land) = scene.context(inventory.clone());
    by_the_fluid_plan(&context).await;
    came_whole(&land, &content);
    let (scene, inventory, content) = source(Vice::Breaks).await;
    let ended = scene.gather_these(Scheme::Direct(Direct::AllAtOnce, 1), inventory).await;
    assert_eq!(ended.outcome.unwrap().failed, []);
    came_whole(&ended.land, &content);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_file_that_shrinks_while_it_is_read_is_kept() {
    let (scene, inventory, content) = source(Vice::Shrinks).await;
    let (context, land) = scene.context(inventory.clone());
    by_the_fluid_plan(&context).await;
    is_given_up(&land, &content);
    let ended = scene.gather_these(Scheme::Direct(Direct::AllAtOnce, 1), inventory).await;
    ended.outcome.unwrap();
    is_given_up(&ended.land, &content);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_always_asks_for_another_request_is_given_up() {
    let (scene, inventory, content) = source(Vice::PutsOff).await;
    let (context, land) = scene.context(inventory);
    let (interval, patience) = (Some(Duration::from_millis(100)), Duration::from_millis(500));
    let settings = Settings { interval, patience, ..Settings::default() };
    let outcome = fluid::run(&context, settings).await.unwrap();
    assert!(
        matches!(&outcome.failed[..], [(0, why)] if why.contains("maximum number")),
        "{outcome:?}"
    );
    assert!(land.is_of(0, &content) && land.file(0).is_none());
}
