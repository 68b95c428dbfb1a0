use super::*;

#[test]
fn two_queues_over_one_table_keep_their_order() {
    let mut links = Links::new(4);
    let (mut one, mut other) = (BufferQueue::default(), BufferQueue::default());
    assert!(one.pop(&links).is_none() && one.last_mut(&mut links).is_none());
    one.push(&mut links, 2, 20);
    other.push(&mut links, 0, 5);
    one.push(&mut links, 1, 10);
    let (id, len) = one.last_mut(&mut links).unwrap();
    assert_eq!((id, *len), (1, 10));
    *len += 1;
    assert_eq!(
        (one.pop(&links), one.pop(&links), one.pop(&links)),
        (Some((2, 20)), Some((1, 11)), None)
    );
    one.push(&mut links, 2, 7);
    assert_eq!((one.pop(&links), other.pop(&links)), (Some((2, 7)), Some((0, 5))));
}
