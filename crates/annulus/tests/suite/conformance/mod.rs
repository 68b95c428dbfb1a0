//! Checks that behaviour is the same on every driver and kernel. Each body is written once against
//! the public API, with client and server on one runtime, and runs in every mode that supports it.

mod async_fds;
mod buffered;
mod cancels;
mod codecs;
mod connections;
mod copies;
mod datagrams;
mod drops;
mod errors;
mod foreign_traits;
mod forwards;
mod frames;
mod groups;
mod halves;
mod last_bytes;
mod leftovers;
mod memory;
pub(crate) mod mode;
mod nops;
mod options;
mod pressure;
mod readiness;
mod runtime_end;
mod sockets;
mod splices;
mod stats;
mod streams;
mod timers;
mod unix;
mod unix_paths;
mod writes;

use annulus::Builder;
use foreign_traits::{futures, tokio};
use mode::{Case, Mode};

/// Creates one test per mode, which runs the case that the function `case` returns.
macro_rules! modes {
    ($($name:ident: $mode:ident;)*) => {$(
        #[test]
        fn $name() {
            Mode::$mode.run(&case());
        }
    )*};
}

/// Each row names a body, optionally with settings of the runtime and a check of its counters. The
/// row becomes a module with one test per mode.
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
                guest_on_uring: GuestOnUring;
                guest_on_uring_without_newer_flags: GuestOnUringWithoutNewerFlags;
                guest_on_epoll: GuestOnEpoll;
                simulated: Simulated;
                simulated_old_kernel: SimulatedOldKernel;
                simulated_epoll: SimulatedEpoll;
                uring_busy_polling: UringBusyPolling;
                simulated_busy_polling: SimulatedBusyPolling;
                uring_without_copies: UringWithoutCopies;
                simulated_without_copies: SimulatedWithoutCopies;
            }
        }
    )*};
}

/// Like `suite!`, for bodies that need the real kernel. Rows have no settings and no check, and the
/// modes with busy polling and without copies are left out.
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
                guest_on_uring: GuestOnUring;
                guest_on_uring_without_newer_flags: GuestOnUringWithoutNewerFlags;
                guest_on_epoll: GuestOnEpoll;
            }
        }
    )*};
}

/// Like `suite!`, for bodies that do not depend on which operations carry the bytes of streams.
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
                guest_on_uring: GuestOnUring;
                guest_on_uring_without_newer_flags: GuestOnUringWithoutNewerFlags;
                guest_on_epoll: GuestOnEpoll;
                simulated: Simulated;
                simulated_old_kernel: SimulatedOldKernel;
                simulated_epoll: SimulatedEpoll;
            }
        }
    )*};
}

suite! {
    stats::stats_count_open_resources;
    stats::stats_count_tasks_and_timers;
    stats::stats_count_lent_buffers_and_bytes;
    stats::polls_are_measured, with |builder| builder.slow_poll(Some(std::time::Duration::from_secs(100_000)));
    connections::both_ends_know_both_addresses;
    connections::a_client_connects_from_the_given_address;
    connections::a_reset_before_the_accept_is_counted;
    connections::a_refusal_contains_the_address;
    connections::a_connection_to_oneself_is_refused;
    connections::a_local_port_serves_one_attempt_after_another;
    connections::an_address_is_free_at_once_for_another_socket;
    errors::errors_contain_operation_and_peer;
    connections::a_thousand_connections_echo;
    connections::connections_are_accepted_before_a_task_waits;
    connections::a_limit_applies_across_several_listeners;
    connections::a_limit_counts_until_the_close;
    connections::dropped_accepts_at_a_limit_keep_no_waker;
    connections::a_close_waits_for_sent_bytes, with small_bounds;
    connections::a_connection_moves_with_its_received_bytes;
    groups::every_member_gets_every_message_in_order;
    groups::a_member_gets_what_is_sent_while_it_is_one;
    groups::a_slow_member_is_disconnected;
    groups::a_slow_member_misses_whole_messages;
    groups::a_slow_member_gets_the_latest_message;
    groups::members_that_reset_together_are_reported;
    groups::a_stream_that_no_longer_exists_is_no_member;
    groups::members_that_never_read_hold_no_more_than_the_limit;
    streams::the_client_half_closes_and_still_receives;
    streams::the_server_half_closes_and_still_receives;
    streams::a_reset_is_reported_and_stays;
    streams::a_reset_that_a_send_has_reported_is_not_the_end;
    streams::an_end_after_unread_bytes_is_received;
    streams::four_mebibytes_are_echoed, then streams::were_zero_copy;
    streams::several_chunks_are_sent_as_one, then streams::were_zero_copy;
    streams::two_thousand_single_bytes_are_echoed;
    streams::halves_work_independently;
    streams::halves_become_one_stream_again;
    halves::halves_of_any_stream_work_independently, with small_bounds;
    halves::an_unsplit_stream_keeps_shown_bytes;
    halves::the_last_half_closes_the_stream;
    writes::written_bytes_leave_without_further_polls;
    writes::a_drain_waits_for_written_bytes;
    writes::bytes_queued_after_a_small_send_leave_without_further_events;
    writes::slices_arrive_in_order_with_chunks, with small_bounds;
    writes::pushed_bytes_leave_at_once_and_in_order;
    writes::writing_no_bytes_writes_nothing;
    writes::halves_write_all, with small_bounds;
    writes::a_flush_returns_the_error_of_a_send;
    writes::nothing_is_written_after_a_shutdown;
    buffered::shown_bytes_stay_until_they_are_consumed;
    buffered::bytes_of_several_leases_are_shown_in_one_piece;
    buffered::an_error_comes_after_shown_bytes;
    buffered::a_peek_that_was_ready_is_ready_again, with |b| b.task_budget(1);
    buffered::dropped_peeks_lose_no_byte;
    buffered::received_bytes_are_taken_without_waiting;
    buffered::taking_nothing_leaves_a_waiting_task_its_wake;
    buffered::shown_bytes_move_with_the_stream;
    buffered::a_copy_begins_with_shown_bytes;
    last_bytes::bytes_before_a_shutdown_arrive_after_the_drop;
    last_bytes::queued_bytes_arrive_after_the_drop, with small_bounds;
    last_bytes::bytes_before_a_close_arrive;
    last_bytes::a_peer_that_never_stops_sending_is_reset;
    last_bytes::a_silent_peer_keeps_no_descriptor;
    last_bytes::a_close_that_waits_keeps_its_place_in_a_limit;
    frames::frames_arrive_whole;
    frames::dropped_reads_of_frames_lose_none;
    frames::incomplete_frames_block_no_stream, with |b| b.stream_buffer_size(4096).stream_buffer_count(2);
    frames::bad_frames_are_refused;
    frames::a_partial_frame_before_the_end_is_an_error, with |b| b.task_budget(1);
    frames::lines_arrive_whole;
    frames::bad_lines_are_refused;
    frames::memory_of_the_caller_is_filled;
    frames::one_function_serves_all_streams;
    futures::lines_are_read_by_futures;
    futures::streams_are_split_and_copied_by_futures;
    futures::halves_are_copied_in_place_by_futures;
    tokio::a_proxy_copies_both_ways_by_tokio;
    tokio::buffered_streams_of_tokio_serve;
    tokio::dropped_reads_of_tokio_lose_no_byte;
    tokio::writes_through_the_traits_are_bounded, with small_bounds;
    writes::large_writes_go_to_the_kernel_at_once, then writes::went_directly;
    codecs::messages_are_echoed;
    codecs::dropped_reads_of_messages_lose_none;
    leftovers::every_way_to_free_a_stream_after_every_abandoned_future;
    leftovers::the_runtime_ends_after_every_abandoned_future, with |builder| builder.shutdown_timeout(std::time::Duration::from_millis(50));
    leftovers::abandoned_connects_and_accepts_leak_nothing;
    codecs::a_message_above_its_limit_is_an_error;
    codecs::an_end_within_a_message_is_an_error;
    codecs::framed_of_tokio_serves;
    copies::a_quiet_source_does_not_hold_back_copied_bytes;
    copies::bytes_copied_after_a_small_send_leave_without_further_events;
    copies::more_copies_than_the_task_budget_all_progress, with |builder| builder.task_budget(1);
    copies::a_direction_that_was_shut_down_does_not_end_the_other;
    copies::halves_are_copied, with small_bounds;
    copies::a_limit_leaves_the_rest;
    copies::each_end_is_passed_on_separately;
    copies::large_transfers_go_both_ways, with small_bounds;
    copies::an_error_contains_its_direction;
    copies::dropped_copies_lose_nothing, with small_bounds;
    forwards::messages_pass_without_the_task;
    forwards::a_copy_of_halves_passes_messages_without_the_task;
    forwards::bytes_after_a_drop_stay_with_their_stream;
    forwards::a_forgotten_copy_leaves_bytes_to_a_receive;
    forwards::a_target_that_replaces_another_receives_nothing;
    forwards::shown_bytes_are_not_overtaken;
    forwards::a_limit_ends_a_copy_that_waits;
    forwards::a_limit_ends_one_direction;
    forwards::a_lowered_limit_applies;
    forwards::a_copy_repeated_at_its_limit_continues_the_other_way;
    forwards::a_chain_passes_bytes_and_ends, with small_bounds;
    forwards::a_ring_of_copies_passes_a_message_around;
    forwards::a_target_that_does_not_read_stops_its_source, with small_bounds;
    splices::long_transfers_and_messages_take_turns, with |b| b.splice_threshold(None), then splices::went_by_receives;
    pressure::a_slow_reader_blocks_the_writer, with small_bounds;
    pressure::unread_bytes_are_bounded, with pressure::pages;
    pressure::a_pool_of_two_serves_thirty, with |b| b.stream_buffer_size(4096).stream_buffer_count(2), then pressure::had_no_buffers;
    pressure::a_pool_of_eight_is_shared_fairly, with |b| b.stream_buffer_size(4096).stream_buffer_count(8);
    pressure::held_leases_block_no_stream, with |b| b.stream_buffer_size(4096).stream_buffer_count(4), then pressure::received_into_the_heap;
    pressure::tiny_queues_serve_two_hundred, with |b| b.sq_entries(2).cq_entries(4), then pressure::overflowed;
    memory::ends_that_both_send_and_read_progress, with memory::a_mebibyte;
    memory::pieces_above_the_allowance_arrive, with memory::a_mebibyte;
    memory::paused_streams_resume, with memory::little_memory, then memory::were_paused;
    timers::sleeps_end_in_order;
    timers::a_timeout_ends_only_slow_futures;
    timers::a_reset_sleep_wakes_the_task_that_waits;
    timers::a_thousand_timers_are_set_and_removed;
    cancels::accepts_lose_no_connection;
    cancels::receives_lose_no_byte;
    cancels::dropped_connects_send_no_byte;
    cancels::dropped_sends_are_sent_once_polled, with small_bounds;
    cancels::drains_lose_nothing, with small_bounds;
    cancels::shutdowns_happen_once_polled, with small_bounds;
    readiness::bytes_go_both_ways_by_readiness, with small_bounds;
    readiness::an_end_and_a_reset_are_ready;
    readiness::either_direction_of_a_stream_is_awaited, with small_bounds;
    readiness::several_pieces_are_written_and_read_at_once;
    readiness::a_full_queue_is_not_writable, with small_bounds;
    readiness::trying_leaves_a_waiting_task_its_wake;
    drops::an_unpolled_send_sends_nothing;
    drops::a_dropped_stream_sends_accepted_bytes;
    drops::halves_may_be_dropped_in_any_order;
    drops::a_dropped_listener_closes_unclaimed_connections;
    drops::a_lease_outlives_its_stream;
    drops::a_dropped_join_handle_detaches;
    drops::an_aborted_task_closes_its_stream;
    nops::a_thousand_tasks_do_nops_at_once;
    nops::dropped_nops_leave_nothing;
    nops::a_nop_follows_its_future;
    runtime_end::everything_may_be_in_flight;
}

/// Copies between two sockets, with a threshold of one byte for the use of pipes.
mod splicing {
    use super::*;

    macro_rules! splicing_suite {
        ($($module:ident::$body:ident $(, with $settings:expr)? $(, then $check:expr)?;)*) => {$(
            mod $body {
                use super::*;

                fn case() -> Case {
                    let case = Case::new(|| Box::pin($module::$body())).with(|builder| {
                        let builder = builder.splice_threshold(Some(1));
                        $(let builder = $settings(builder);)?
                        builder
                    });
                    case$(.then($check))?
                }

                modes! {
                    uring: Uring;
                    uring_without_newer_flags: UringWithoutNewerFlags;
                    epoll: Epoll;
                }
            }
        )*};
    }

    splicing_suite! {
        splices::long_transfers_and_messages_take_turns, then splices::went_through_pipes;
        splices::unix_streams_go_through_pipes, then splices::went_through_pipes;
        splices::bytes_after_an_urgent_byte_are_copied, then splices::went_through_pipes;
        splices::a_stream_is_copied_to_itself, then splices::went_through_pipes;
        splices::a_limit_is_exact, then splices::went_through_pipes;
        splices::copied_bytes_are_sent_by_a_dropped_stream, then splices::went_through_pipes;
        splices::a_copy_continues_after_a_dropped_one, then splices::went_through_pipes;
        splices::a_reset_of_the_source_is_an_error_and_not_an_end, then splices::went_through_pipes;
        splices::a_reset_of_the_target_ends_the_copy, then splices::went_through_pipes;
        splices::a_connection_moves_after_the_bytes_in_its_pipe, then splices::went_through_pipes;
        splices::bytes_are_equal_wherever_copies_are_dropped, then splices::went_through_pipes;
        leftovers::every_way_to_free_a_stream_after_every_abandoned_future;
        copies::large_transfers_go_both_ways, with small_bounds;
        copies::dropped_copies_lose_nothing, with small_bounds;
        forwards::a_chain_passes_bytes_and_ends, with small_bounds;
        forwards::a_ring_of_copies_passes_a_message_around, with small_bounds;
        forwards::a_target_that_does_not_read_stops_its_source, with small_bounds;
    }
}

/// Bounds so small that every operation waits.
fn small_bounds(builder: Builder) -> Builder {
    builder.unread_limit(4096).unsent_limit(4096)
}

message_suite! {
    datagrams::datagrams_of_every_length_are_echoed;
    datagrams::borrowed_datagrams_of_all_sizes_keep_their_order;
    datagrams::large_borrowed_datagrams_go_to_the_kernel_at_once, then datagrams::went_directly;
    datagrams::many_clients_get_their_own_answers;
    datagrams::a_new_peer_does_not_get_the_datagrams_for_the_former_one;
    datagrams::options_do_not_affect_datagrams_that_were_sent_before;
    datagrams::an_oversized_datagram_is_refused_with_the_limit;
    datagrams::a_datagram_larger_than_its_buffer_is_an_error, with |b| b.datagram_buffer_size(4096).datagram_buffer_count(64);
    datagrams::a_refusal_is_returned_by_a_receive_and_does_not_end_the_socket;
    datagrams::several_tasks_wait_for_one_socket;
    datagrams::dropped_receives_lose_no_datagram;
    datagrams::a_dropped_socket_sends_accepted_datagrams;
    datagrams::segments_arrive_as_datagrams;
    datagrams::segments_of_no_bytes_are_refused;
    datagrams::try_send_copies;
    datagrams::datagrams_queued_after_another_leave_without_further_events;
    readiness::datagrams_are_taken_by_readiness;
    readiness::unix_datagrams_are_taken_by_readiness;
    readiness::either_direction_of_a_datagram_socket_is_awaited;
    readiness::a_dropped_wait_for_datagrams_keeps_no_waker;
    datagrams::peeked_datagrams_stay;
    datagrams::datagrams_are_received_in_batches;
    datagrams::an_error_in_a_batch_comes_after_the_datagrams_before_it, with |b| b.datagram_buffer_size(4096).datagram_buffer_count(64);
    datagrams::coalesced_datagrams_larger_than_a_buffer_arrive_whole, with |b| b.datagram_buffer_size(4096).datagram_buffer_count(64);
    datagrams::calls_that_do_not_wait_find_large_datagrams, with |b| b.datagram_buffer_size(4096).datagram_buffer_count(64);
    datagrams::datagrams_dropped_in_a_flood_are_counted;
    datagrams::tasks_that_poll_for_space_and_for_a_drain_are_woken, with small_bounds;
    datagrams::a_task_that_polled_once_consumes_no_wake;
    options::options_of_a_stream_read_back_as_set;
    options::a_stream_is_probed_as_configured;
    options::a_close_that_would_wait_is_refused;
    options::accepted_streams_inherit_the_options_of_their_listener;
    options::a_client_connects_with_options_from_a_given_port;
    options::an_ipv6_listener_accepts_one_protocol_or_both;
    sockets::options_apply_to_listeners_and_their_connections;
    sockets::socket_connects_with_its_options_from_its_address;
    sockets::errors_of_a_socket_contain_its_address;
    sockets::ipv6_socket_is_for_one_protocol_or_both;
    sockets::dropped_sockets_leave_nothing;
    options::options_of_a_udp_socket_read_back_as_set;
    options::options_of_unix_sockets_read_back_as_set;
    unix::streams_at_a_path_echo;
    unix::streams_by_an_abstract_name_echo;
    unix::a_pair_half_closes;
    errors::errors_contain_operation_and_path;
    errors::the_error_of_a_refused_datagram_contains_the_peer;
    errors::errors_of_sockets_keep_kind_and_number;
    unix::a_path_in_use_is_refused_and_a_stale_one_replaced;
    unix::a_path_that_is_too_long_is_refused;
    unix::datagrams_at_paths_are_echoed;
    unix::a_slow_receiver_loses_no_datagram;
    unix::several_tasks_drain_one_socket;
    unix::a_new_peer_does_not_get_datagrams_that_wait_for_the_former_one;
    unix::a_socket_without_an_address_sends;
    unix::a_drain_returns_the_error_of_a_refused_datagram;
    unix::every_path_has_its_own_failure;
    unix::receivers_that_do_not_read_do_not_block_others, with small_bounds;
    unix::a_slow_receiver_blocks_its_sender, with small_bounds;
}

linux_suite! {
    errors::errors_of_files_and_processes_keep_kind_and_number;
    connections::a_connection_that_other_code_accepts_returns_its_permit;
    connections::exposed_descriptors_are_non_blocking;
    connections::sockets_are_blocking_as_standard_streams_of_a_child;
    readiness::pipes_are_read_and_written_by_readiness;
    async_fds::inotify_under_a_select_loses_no_event;
    async_fds::a_partly_read_descriptor_is_still_ready;
    async_fds::the_directions_are_independent;
    async_fds::a_wait_for_either_direction_returns_what_is_ready;
    async_fds::every_task_that_waits_is_woken;
    async_fds::several_waiters_may_share_one_descriptor;
    async_fds::a_stream_receives_while_its_descriptor_is_polled;
    async_fds::a_replaced_descriptor_is_closed_and_affects_no_other;
    async_fds::dropped_waits_leave_nothing;
    async_fds::a_dropped_wait_keeps_no_waker;
    async_fds::an_always_ready_descriptor_lets_other_tasks_run;
    async_fds::a_regular_file_is_refused_and_a_device_is_always_ready;
    async_fds::a_file_of_the_system_is_polled;
    async_fds::timers_and_pipes_are_awaited;
    async_fds::the_end_of_a_runtime_ends_a_wait;
    connections::a_connection_converts_to_the_standard_library;
    connections::a_connection_that_was_reset_does_not_move;
    async_fds::packets_of_a_connection_keep_their_ends;
    options::sockets_are_bound_to_an_interface;
    sockets::a_connect_that_other_code_has_begun_is_awaited;
    buffered::descriptors_of_shown_bytes_stay;
    buffered::descriptors_stay_with_partly_read_bytes;
    buffered::descriptors_stay_with_their_bytes_if_a_peek_is_dropped;
    unix::each_end_knows_the_process_of_the_other;
    leftovers::abandoned_descriptors_and_pipes_leak_nothing;
    unix_paths::a_peer_whose_path_has_no_final_zero_is_accepted_as_unnamed;
    unix::streams_pass_descriptors;
    unix::bytes_after_a_descriptor_are_received;
    unix::datagrams_pass_descriptors;
    unix::descriptors_that_are_not_taken_are_closed;
    unix::descriptors_of_bytes_taken_without_them_are_closed_at_once;
    unix::datagrams_carry_no_descriptors_unless_enabled;
    unix::descriptors_of_processes_are_closed;
}

#[test]
fn runtimes_run_side_by_side() {
    for mode in Mode::ALL {
        runtime_end::side_by_side(mode);
    }
}
