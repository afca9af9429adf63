#include "runtime/arena/arena.hpp"
#include "runtime/base/patient_deadline.hpp"
#include "runtime/device/device.hpp"
#include "tools/penstock-probe/probes.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

namespace penstock::probe {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t rows = 32;
constexpr std::uint32_t side = 64;
constexpr auto upload_deadline = 20s;
constexpr auto looked_at_least_every = 10ms;

/// A batch of pictures as a session would upload it.
result<device::transfer_plan> small_plan() {
  const std::vector<tensor_spec> tensors{{"image", dtype::uint8, {side, side, 3}, tensor_role::image},
                                         {"label", dtype::int64, {}, tensor_role::data}};
  auto layout = lay_out(tensors, rows);
  if (!layout) return tl::unexpected(std::move(layout.error()));
  return device::plan_transfer(
      *layout, {image_layout::nchw, dtype::float16, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}});
}

/// The device's result for the batch at the beginning of partition 0.
result<std::vector<std::byte>> upload_and_read_back(device::device& on, const device::transfer_plan& plan) {
  begin_step("allocating device memory");
  if (auto ok = on.allocate(plan, 1); !ok) return tl::unexpected(std::move(ok.error()));
  begin_step("copying and converting a batch");
  const device::upload_job job{1, 0, 0, 0, rows};
  if (auto ok = on.submit({&job, 1}); !ok) return tl::unexpected(std::move(ok.error()));
  patient_deadline watched(upload_deadline, looked_at_least_every);
  watched.restart(std::chrono::steady_clock::now());
  for (bool ready = false; !ready;) {
    auto news = on.poll();
    if (!news) return tl::unexpected(std::move(news.error()));
    ready = std::ranges::any_of(*news, [](const auto& n) { return n.reached == device::stage::ready; });
    if (!ready && watched.is_over(std::chrono::steady_clock::now()))
      return refuse(errc::timed_out, "the copy or the kernel did not finish");
    if (!ready) std::this_thread::sleep_for(1ms);
  }
  begin_step("copying the batch back");
  std::vector<std::byte> bytes(plan.buffer_bytes);
  if (auto ok = on.read_back(0, 0, bytes); !ok) return tl::unexpected(std::move(ok.error()));
  return bytes;
}

result<void> try_all(const deep_request& request) {
  begin_step("creating the context");
  auto made = device::make_device(request.device);
  if (!made) return tl::unexpected(std::move(made.error()));
  device::device& tested = **made;
  auto identity = tested.open();
  if (!identity) return tl::unexpected(std::move(identity.error()));
  tell({{"device", identity->name}});

  auto plan = small_plan();
  if (!plan) return tl::unexpected(std::move(plan.error()));
  begin_step("reserving host memory");
  auto memory = arena::arena::create();
  if (!memory) return tl::unexpected(std::move(memory.error()));
  const arena::geometry shape{std::max(request.slot_bytes, plan->slot.bytes), request.slots,
                              request.partitions};
  if (auto ok = memory->size_and_seal(shape); !ok) return ok;

  std::uint64_t pinned = 0;
  std::vector<mapping> partitions;
  for (std::uint32_t p = 0; p < shape.partitions; ++p) {
    if (auto ok = memory->reserve(p); !ok) return ok;
    auto mapped = arena::map_partition(memory->fd(), shape, p);
    if (!mapped) return tl::unexpected(std::move(mapped.error()));
    partitions.push_back(std::move(*mapped));
    begin_step("page-locking host memory");
    auto locked = tested.attach(p, partitions.back().bytes());
    if (!locked) return tl::unexpected(std::move(locked.error()));
    if (*locked) pinned += shape.partition_bytes();
    tell({{"asked_to_pin", shape.partition_bytes() * shape.partitions}, {"pinned", pinned}});
  }

  const auto slot = partitions.front().bytes().first(plan->slot.bytes);
  for (std::size_t i = 0; i < slot.size(); ++i) slot[i] = static_cast<std::byte>(i * 2654435761U >> 11U);
  auto theirs = upload_and_read_back(tested, *plan);
  if (!theirs) return tl::unexpected(std::move(theirs.error()));
  begin_step("releasing everything");
  tested.close();

  begin_step("computing the same values on the host");
  auto host = device::make_device("host");
  if (!host) return tl::unexpected(std::move(host.error()));
  if (auto ok = (*host)->open(); !ok) return tl::unexpected(std::move(ok.error()));
  if (auto ok = (*host)->attach(0, partitions.front().bytes()); !ok)
    return tl::unexpected(std::move(ok.error()));
  auto ours = upload_and_read_back(**host, *plan);
  if (!ours) return tl::unexpected(std::move(ours.error()));
  (*host)->close();
  bool equal = true;  // ignoring the padding between tensors
  for (const auto& t : plan->tensors) {
    const auto begin = static_cast<std::ptrdiff_t>(t.offset);
    equal &= std::equal(theirs->begin() + begin,
                        theirs->begin() + begin + static_cast<std::ptrdiff_t>(t.row_bytes * rows),
                        ours->begin() + begin);
  }
  tell({{"equal", equal}});
  return {};
}

}  // namespace

int go_deep(const deep_request& request) {
  const auto begin = std::chrono::steady_clock::now();
  if (auto ok = try_all(request); !ok) {
    tell({{"error", ok.error().message}, {"code", ok.error().os_code}});
    return 1;
  }
  tell({{"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()}});
  return 0;
}

}  // namespace penstock::probe
