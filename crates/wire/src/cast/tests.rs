use super::*;
use crate::{
    Signable,
    manifest::ObjectId,
    object::{ExtraMetadata, FilePath, FileTime, Owners, Xattr},
};
use proptest::prelude::*;
use thalweg_units::WallTime;

fn offer() -> Offer {
    Offer {
        name: FilePath::new(b"data.tar".to_vec()).unwrap(),
        object: ObjectId::from_bytes([1; 32]),
        length: 20_000_001,
        layout: [2; 32],
        layout_bytes: 40,
        shape: Shape { symbol_bytes: 1 << 14, block_symbols: 512, repair_symbols: 128 },
        open: true,
        created: WallTime::from_unix_nanos(5),
        expiry: WallTime::from_unix_nanos(6),
    }
}

fn encoded<T: Signable>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out);
    out
}

#[test]
fn offers_round_trip_and_invalid_ones_are_refused() {
    let good = offer();
    assert_eq!(Offer::decode(&encoded(&good)), Ok(good.clone()));
    assert_eq!(good.symbols(), 1221);
    let bad = |change: fn(&mut Offer)| {
        let mut bad = offer();
        change(&mut bad);
        Offer::decode(&encoded(&bad)).unwrap_err()
    };
    bad(|o| o.shape.symbol_bytes = 3000);
    bad(|o| o.shape.symbol_bytes = 1 << 17);
    bad(|o| o.shape.block_symbols = 0);
    bad(|o| o.shape.block_symbols = 100);
    bad(|o| o.shape.repair_symbols = MAX_REPAIR + 1);
    bad(|o| o.length = u64::MAX);
    bad(|o| o.name = FilePath::new(b"a/b".to_vec()).unwrap());
    bad(|o| o.name = FilePath::new(Vec::new()).unwrap());
    bad(|o| o.name = FilePath::new(b".thalweg-cast-1".to_vec()).unwrap());
}

#[test]
fn the_same_offer_has_the_same_id() {
    let signer = thalweg_units::NodeId::from_bytes([7; 32]);
    let (first, mut second) = (offer(), offer());
    (second.created, second.expiry) = (WallTime::from_unix_nanos(7), WallTime::from_unix_nanos(8));
    assert_eq!(first.id(&signer), second.id(&signer));
    assert_ne!(first.id(&signer), first.id(&thalweg_units::NodeId::from_bytes([8; 32])));
    second.shape.repair_symbols += 1;
    assert_ne!(first.id(&signer), second.id(&signer));
    let text = first.id(&signer).to_string();
    assert_eq!(text.parse(), Ok(first.id(&signer)));
    assert_eq!("x".parse::<CastId>(), Err(CastIdError));
}

fn entry(path: &str, kind: LayoutKind) -> LayoutEntry {
    let path = FilePath::new(path.into()).unwrap();
    LayoutEntry { path, kind, mode: 0o644, modified: FileTime::from_nanos(-1), more: None }
}

#[test]
fn a_layout_must_be_a_tree_with_the_objects_bytes() {
    use LayoutKind::{Directory, File, Symlink};
    let file = |length| File { length };
    let read = |entries: Vec<LayoutEntry>, length| {
        Layout::decode(&Layout::new(entries).encode(), length).map(drop)
    };
    assert_eq!(read(vec![entry("", file(3))], 3), Ok(()));
    let tree = || {
        vec![
            entry("", Directory),
            entry("a", Directory),
            entry("a/x", file(1)),
            entry("b", Symlink { target: b"../../etc".to_vec() }),
            entry("c", file(2)),
        ]
    };
    assert_eq!(read(tree(), 3), Ok(()));
    assert_eq!(read(tree(), 4), Err(LayoutError::Length));
    assert_eq!(read(vec![], 0), Err(LayoutError::Root));
    assert_eq!(read(vec![entry("", file(1)), entry("b", file(1))], 2), Err(LayoutError::Root));
    assert_eq!(read(vec![entry("", Symlink { target: b"a".to_vec() })], 0), Err(LayoutError::Root));
    let below_a_link = vec![
        entry("", Directory),
        entry("l", Symlink { target: b"/etc".to_vec() }),
        entry("l/passwd", file(1)),
    ];
    assert_eq!(read(below_a_link, 1), Err(LayoutError::Parent));
    let twice = vec![entry("", Directory), entry("a", file(1)), entry("a", file(1))];
    assert_eq!(read(twice, 2), Err(LayoutError::Order));
    let much = vec![entry("", Directory), entry("a", file(u64::MAX)), entry("b", file(5))];
    assert_eq!(read(much, 4), Err(LayoutError::Length));
    let many = vec![entry("", Directory); MAX_ENTRIES + 1];
    assert_eq!(read(many, 0), Err(LayoutError::Many));
    let nul = vec![entry("", Directory), entry("a", Symlink { target: b"a\0b".to_vec() })];
    assert_eq!(read(nul, 0), Err(LayoutError::Target));
}

#[test]
fn layouts_with_fields_round_trip_and_those_without_keep_the_old_encoding() {
    use LayoutKind::{Directory, File};
    let plain = vec![entry("", Directory), entry("a", File { length: 3 })];
    let old: Vec<(FilePath, LayoutKind, u16, i64)> =
        plain.iter().map(|e| (e.path.clone(), e.kind.clone(), e.mode, -1)).collect();
    assert_eq!(Layout::new(plain.clone()).encode(), postcard::to_stdvec(&old).unwrap());
    let mut all = Layout::new(plain);
    all.owners.users.push((5, b"root".to_vec()));
    all.entries[0].modified = FileTime::new(15_032_385_535, 1).unwrap();
    let more = ExtraMetadata {
        is_unreadable: false,
        xattrs: vec![Xattr { name: b"user.a".to_vec(), value: vec![7] }],
        holes: Some(vec![(0, 2)]),
    };
    let more = LayoutMetadata { user: Some(5), group: Some(6), same_as: None, more };
    all.entries[1].more = Some(Box::new(more));
    let mut second = entry("b", File { length: 0 });
    second.more = Some(Box::new(LayoutMetadata { same_as: Some(1), ..LayoutMetadata::default() }));
    all.entries.push(second);
    assert_eq!(Layout::decode(&all.encode(), 3), Ok(all.clone()));
    for wrong in [0, 2, 3] {
        all.entries[2].more.get_or_insert_default().same_as = Some(wrong);
        assert_eq!(Layout::decode(&all.encode(), 3), Err(LayoutError::SameAs), "{wrong}");
    }
    all.entries[2].more = None;
    all.owners = Owners { users: vec![(1, vec![b'x'; 1 << 21])], groups: Vec::new() };
    assert_eq!(Layout::decode(&all.encode(), 3), Err(LayoutError::Fields));
}

#[test]
fn runs_are_sound_if_they_ascend_within_the_symbols() {
    assert!(are_sound(&[(0, 3), (3, 4), (9, 10)], 10));
    for bad in [&[(0, 0)][..], &[(3, 4), (0, 2)], &[(0, 3), (2, 4)], &[(0, 11)], &[(4, 3)]] {
        assert!(!are_sound(bad, 10), "{bad:?}");
    }
    assert!(are_within(&[(3, 4), (0, 2), (1, 10)], 10));
    assert!(!are_within(&[(3, 4), (0, 11)], 10) && !are_within(&[(4, 4)], 10));
    let many: Vec<_> = (0..=MAX_RANGES as u64).map(|n| (2 * n, 2 * n + 1)).collect();
    assert!(!are_sound(&many, u64::MAX));
}

#[test]
fn frames_round_trip() {
    let symbol = Frame::Symbol(SymbolHead { block: 3, esi: 600, length: 16_384 });
    assert_eq!(Frame::decode(symbol.encode()), Ok(symbol));
    let original = ParentMessage::Have(vec![(1, 4)]);
    let message = Frame::encode_message(&original);
    let head: [u8; FRAME_HEAD] = message[..FRAME_HEAD].try_into().unwrap();
    assert_eq!(Frame::decode(head), Ok(Frame::Message(message.len() - FRAME_HEAD)));
    assert_eq!(decode::<ParentMessage>(&message[FRAME_HEAD..]), Ok(original));
    let none = Frame::Symbol(SymbolHead { block: 0, esi: 0, length: 0 });
    assert_eq!(Frame::decode(none.encode()), Err(FrameError::Length(0)));
    assert_eq!(Frame::decode([9; FRAME_HEAD]), Err(FrameError::Kind));
}

#[test]
fn repair_sheets_round_trip_and_their_length_is_bounded() {
    let sheet = RepairSheet {
        cast: CastId::from_bytes([3; 16]),
        block: 7,
        digests: vec![[1; 32], [2; 32]],
    };
    let bytes = encoded(&sheet);
    assert_eq!(RepairSheet::decode(&bytes), Ok(sheet.clone()));
    assert!(RepairSheet::decode(&bytes[..bytes.len() - 1]).is_err());
    let digests = vec![[0; 32]; MAX_REPAIR as usize + 1];
    assert!(RepairSheet::decode(&encoded(&RepairSheet { digests, ..sheet })).is_err());
}

#[test]
fn long_texts_are_truncated() {
    let why = || "ü".repeat(100_000);
    let Answer::Refused(Refusal::System(short)) = Answer::Refused(Refusal::System(why())).cut()
    else {
        unreachable!()
    };
    assert!(short.len() < 1100 && short.ends_with("ü…"));
    let left = Report::Left { name: None, fault: Fault::Lost, why: why() };
    let Report::Left { why, .. } = left.cut() else { unreachable!() };
    assert!(why.len() < 1100);
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes: Vec<u8>) {
        if let Ok(opening) = decode::<Opening>(&bytes) {
            prop_assert_eq!(decode::<Opening>(&encode(&opening)[4..]), Ok(opening));
        }
        _ = decode::<Answer>(&bytes);
        _ = decode::<SourceMessage>(&bytes);
        _ = decode::<Report>(&bytes);
        _ = decode::<ChildMessage>(&bytes);
        _ = decode::<ParentMessage>(&bytes);
        if let Ok(layout) = Layout::decode(&bytes, 0) {
            prop_assert_eq!(Layout::decode(&layout.encode(), 0), Ok(layout));
        }
    }

    #[test]
    fn encodings_are_canonical(bytes: Vec<u8>, head: [u8; FRAME_HEAD]) {
        if let Ok(offer) = Offer::decode(&bytes) {
            prop_assert_eq!(encoded(&offer), bytes.clone());
        }
        if let Ok(sheet) = RepairSheet::decode(&bytes) {
            prop_assert_eq!(encoded(&sheet), bytes.clone());
        }
        if let Ok(pass) = Pass::decode(&bytes) {
            prop_assert_eq!(encoded(&pass), bytes);
        }
        if let Ok(frame) = Frame::decode(head) {
            prop_assert_eq!(frame.encode(), head);
        }
    }
}
