//! One contract for every driver and every kernel: each body below is written once, over the public API, with client and
//! server on one runtime, and runs in every mode.

#[path = "../common/mod.rs"]
mod common;

mod cancels;
mod connections;
mod datagrams;
mod drops;
mod ends;
mod memory;
mod mode;
mod nops;
mod pressure;
mod streams;
mod timers;
mod unix;

use annulus::Builder;
use mode::{Case, Mode};

/// A test a mode, of a row's `case`.
macro_rules! modes {
    ($($name:ident: $mode:ident;)*) => {$(
        #[test]
        fn $name() {
            Mode::$mode.run(&case());
        }
    )*};
}

/// A row is a body, with settings of the runtime and a look at its counters where it wants them. Each row becomes a module
/// with a test a mode.
macro_rules! suite {
    ($($module:ident::$body:ident $(, with $settings:expr)? $(, then $check:expr)?;)*) => {$(
        mod $body {
            use super::*;

            fn case() -> Case {
                Case::new(|| Box::pin($module::$body()))$(.with($settings))?$(.then($check))?
            }

            modes! {
                uring: Uring;
                uring_without_newer_flags: UringWithoutNewerFlags;
                epoll: Epoll;
                simulated: Simulated;
                simulated_old_kernel: SimulatedOldKernel;
                uring_busy_polling: UringBusyPolling;
                simulated_busy_polling: SimulatedBusyPolling;
                uring_with_a_poller: UringWithAPoller;
                simulated_with_a_poller: SimulatedWithAPoller;
                uring_without_copies: UringWithoutCopies;
                simulated_without_copies: SimulatedWithoutCopies;
            }

            #[test]
            fn uring_by_other_operations() {
                Mode::other_operations(Mode::UringBy, &case());
            }

            #[test]
            fn simulated_by_other_operations() {
                Mode::other_operations(Mode::SimulatedBy, &case());
            }
        }
    )*};
}

/// The same for what only Linux has.
macro_rules! linux_suite {
    ($($module:ident::$body:ident;)*) => {$(
        mod $body {
            use super::*;

            fn case() -> Case {
                Case::new(|| Box::pin($module::$body()))
            }

            modes! {
                uring: Uring;
                uring_without_newer_flags: UringWithoutNewerFlags;
                epoll: Epoll;
            }
        }
    )*};
}

/// The same for what does not depend on how streams' bytes are carried.
macro_rules! message_suite {
    ($($module:ident::$body:ident $(, with $settings:expr)? $(, then $check:expr)?;)*) => {$(
        mod $body {
            use super::*;

            fn case() -> Case {
                Case::new(|| Box::pin($module::$body())).in_order()$(.with($settings))?$(.then($check))?
            }

            modes! {
                uring: Uring;
                uring_without_newer_flags: UringWithoutNewerFlags;
                epoll: Epoll;
                simulated: Simulated;
                simulated_old_kernel: SimulatedOldKernel;
                uring_with_a_poller: UringWithAPoller;
                simulated_with_a_poller: SimulatedWithAPoller;
            }
        }
    )*};
}

suite! {
    connections::both_ends_know_each_other;
    connections::a_client_leaves_from_the_address_it_names;
    connections::a_reset_before_the_accept_is_counted;
    connections::a_refusal_names_the_address;
    connections::a_thousand_connections_echo;
    connections::connections_are_accepted_though_nobody_waits;
    connections::a_limit_holds_over_several_listeners;
    connections::a_limit_counts_until_the_close;
    connections::a_connection_moves_with_what_it_had_received;
    streams::the_client_half_closes_and_still_hears;
    streams::the_server_half_closes_and_still_hears;
    streams::a_reset_is_seen_and_stays;
    streams::an_end_behind_unread_bytes_is_heard;
    streams::four_mebibytes_come_back, then streams::were_lent;
    streams::several_chunks_go_as_one, then streams::were_lent;
    streams::two_thousand_single_bytes_come_back;
    streams::halves_work_apart;
    pressure::a_slow_reader_holds_the_writer_up, with small_bounds;
    pressure::what_is_not_read_is_bounded, with pressure::pages;
    pressure::a_pool_of_two_starves_nobody, with |b| b.recv_buffers(4096, 2), then pressure::ran_dry;
    pressure::a_pool_of_eight_is_shared_fairly, with |b| b.recv_buffers(4096, 8);
    pressure::held_leases_stop_nobody, with |b| b.recv_buffers(4096, 4), then pressure::took_the_heap;
    pressure::tiny_queues_serve_two_hundred, with |b| b.sq_entries(2).cq_entries(4), then pressure::overflowed;
    memory::streams_that_were_held_back_go_on, with memory::little_memory, then memory::were_held_back;
    timers::sleeps_end_in_order;
    timers::a_timeout_ends_what_is_slow_and_only_that;
    timers::a_thousand_timers_come_and_go;
    cancels::accepts_lose_no_connection;
    cancels::receives_lose_no_byte;
    cancels::connects_leave_nothing;
    cancels::sends_go_all_the_same, with small_bounds;
    cancels::flushes_lose_nothing, with small_bounds;
    cancels::shutdowns_happen_once_polled, with small_bounds;
    drops::an_unpolled_send_sends_nothing;
    drops::a_dropped_stream_sends_what_it_took;
    drops::halves_may_go_in_any_order;
    drops::a_dropped_listener_lets_its_connections_go;
    drops::a_lease_outlives_its_stream;
    drops::a_dropped_join_handle_detaches;
    drops::an_aborted_task_lets_go;
    nops::a_thousand_tasks_ask_at_once;
    nops::dropped_nops_leave_nothing;
    nops::a_nop_follows_its_future;
    ends::everything_may_be_in_flight;
}

/// So little that everything waits.
fn small_bounds(builder: Builder) -> Builder {
    builder.recv_bound(4096).send_bound(4096)
}

message_suite! {
    datagrams::datagrams_of_every_length_come_back;
    datagrams::many_clients_get_their_own_answers;
    datagrams::an_oversized_datagram_is_refused_in_words;
    datagrams::a_datagram_larger_than_the_room_is_told, with |b| b.datagram_buffers(4096, 64);
    datagrams::a_refusal_reaches_who_receives_and_ends_nothing;
    datagrams::several_tasks_wait_for_one_socket;
    datagrams::dropped_receives_lose_no_datagram;
    datagrams::what_was_accepted_is_sent_though_the_socket_goes;
    datagrams::segments_arrive_as_datagrams;
    datagrams::segments_of_nothing_are_refused_in_words;
    datagrams::a_quick_try_copies;
    datagrams::what_a_flood_loses_is_counted;
    datagrams::each_way_of_polling_is_woken, with small_bounds;
    datagrams::who_polled_and_went_takes_no_wake_along;
    unix::streams_at_a_path_echo;
    unix::streams_by_an_abstract_name_echo;
    unix::a_pair_half_closes;
    unix::a_name_in_use_is_refused_and_a_dead_one_taken_over;
    unix::a_name_too_long_is_told;
    unix::datagrams_at_paths_come_back;
    unix::a_slow_receiver_loses_no_datagram;
    unix::several_tasks_flush_one_socket;
    unix::a_refused_datagram_is_told_to_its_own;
    unix::every_way_tells_its_own_failure;
    unix::readers_that_do_not_read_hold_up_nobody, with small_bounds;
    unix::a_sender_is_held_up_by_a_slow_reader, with small_bounds;
}

linux_suite! {
    connections::a_connection_that_was_reset_does_not_move;
    unix::each_end_knows_the_other_process;
    unix::streams_pass_descriptors;
    unix::bytes_behind_a_descriptor_come_unasked;
    unix::datagrams_pass_descriptors;
    unix::descriptors_that_nobody_takes_are_closed;
    unix::datagrams_bring_no_descriptors_unasked;
}

#[test]
fn runtimes_stand_side_by_side() {
    for mode in Mode::ALL {
        ends::side_by_side(mode);
    }
}
