#include "actors/loader/loader_book.hpp"

#include "runtime/base/exit_codes.hpp"

#include <utility>

namespace penstock::loader {

using next_step = loader_book::next_step;

next_step loader_book::open(const protocol::open_dataset& order) {
  if (order.version != protocol::version) {
    return session_failed({errc::protocol,
                           fmt::format("the session speaks protocol {}, but this worker speaks {}", order.version, protocol::version), 0});
  }
  if (order.pool) {
    return dataset_failed({errc::worker_program,
                           "the worker program ([loader] command) loads a dataset (penstock::worker_main); a pool needs one that "
                           "serves functions (penstock::job_main)",
                           0});
  }
  if (at_ != state::waiting) return out_of_turn("the session asked for a second dataset");
  at_ = state::opening;
  worker_ = order.you.worker;
  return open_and_describe{order};
}

next_step loader_book::described(std::vector<tensor_spec> tensors) {
  at_ = state::described;
  tensors_ = std::move(tensors);
  return std::nullopt;
}

next_step loader_book::assign(const protocol::assign_slots& order) {
  if (at_ < state::described) return out_of_turn("slots were assigned before a dataset was opened");
  if (at_ > state::described) return out_of_turn("slots were assigned twice");
  auto layout = lay_out(tensors_, order.batch_size);
  if (!layout) return dataset_failed(std::move(layout.error()));
  if (layout->bytes > order.slot_bytes) {
    return session_failed(
        {errc::protocol, fmt::format("a batch needs {} bytes, but the slots have {}", layout->bytes, order.slot_bytes), 0});
  }
  at_ = state::setting_up;
  return map_and_set_up{order, std::move(*layout)};
}

next_step loader_book::set_up(bool cuda_loaded, std::int32_t pid) {
  if (cuda_loaded) {
    return dataset_failed({errc::dataset,
                           fmt::format("the worker program or Dataset::setup loaded CUDA into worker {} (pid {}); only the GPU owner "
                                       "uses the GPU",
                                       worker_, pid),
                           0});
  }
  at_ = state::ready;
  return report_ready{};
}

next_step loader_book::lease(protocol::load_batch lease) {
  if (at_ < state::ready) return out_of_turn("it received a lease before slots were assigned");
  usual_ = std::move(lease);
  return woken(false);
}

next_step loader_book::woken(bool stopping) {
  if (stopping) return stopped();
  if (at_ == state::over) return std::nullopt;
  return look_for_urgent{};
}

next_step loader_book::urgent(std::optional<protocol::load_batch> lease) {
  if (!lease) lease = std::exchange(usual_, std::nullopt);
  if (!lease) return std::nullopt;
  if (at_ < state::ready) return out_of_turn("it received a lease before slots were assigned");
  return run_lease{std::move(*lease)};
}

next_step loader_book::ran(bool cuda_loaded) {
  if (cuda_loaded) return end(exit_codes::temporary);
  return woken(false);
}

next_step loader_book::name(const protocol::name_samples& order) {
  if (at_ < state::ready) return out_of_turn("the session asked for names before it assigned slots");
  if (at_ == state::over) return std::nullopt;
  return tell_names{order.samples};
}

next_step loader_book::link_lost(const std::string& reason) {
  if (reason.empty()) return end(exit_codes::parent_lost);
  return session_failed({errc::protocol, reason, 0});
}

next_step loader_book::stopped() { return end(exit_codes::finished); }

next_step loader_book::session_failed(failure why) { return end(exit_codes::protocol, std::move(why)); }

next_step loader_book::dataset_failed(failure why) { return end(exit_codes::configuration, std::move(why)); }

next_step loader_book::out_of_turn(const char* what) { return session_failed({errc::protocol, what, 0}); }

next_step loader_book::end(int exit_code, std::optional<failure> why) {
  if (std::exchange(at_, state::over) == state::over) return std::nullopt;
  return end_process{exit_code, std::move(why)};
}

}  // namespace penstock::loader
