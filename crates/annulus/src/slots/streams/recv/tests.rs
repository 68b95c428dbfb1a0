use super::*;

#[test]
fn queues_sharing_a_table_keep_their_order() {
    let mut table = BufferTable::new(4);
    let (mut one, mut other) = (BufferQueue::default(), BufferQueue::default());
    assert!(one.pop(&table).is_none() && one.last_mut(&mut table).is_none());
    one.push(&mut table, 2, 20);
    other.push(&mut table, 0, 5);
    one.push(&mut table, 1, 10);
    let (id, len) = one.last_mut(&mut table).unwrap();
    assert_eq!((id, *len), (1, 10));
    *len += 1;
    assert_eq!(
        (one.pop(&table), one.pop(&table), one.pop(&table)),
        (Some((2, 20)), Some((1, 11)), None)
    );
    one.push(&mut table, 2, 7);
    assert_eq!((one.pop(&table), other.pop(&table)), (Some((2, 7)), Some((0, 5))));
}
