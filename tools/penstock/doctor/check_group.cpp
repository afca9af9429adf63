#include "tools/penstock/doctor/row_checks.hpp"

namespace penstock::doctor {
namespace {

constexpr const char* no_rank = "no launcher has made this process a rank of a group";

}  // namespace

finding check_rank(const facts& f) {
  if (!f.group.rank_trouble.empty()) return {status::fail, f.group.rank_trouble};
  if (!f.group.there) return skipped(no_rank);
  return {status::ok, f.group.place};
}

finding check_rank_gpus(const facts& f) {
  if (!f.group.there) return skipped(no_rank);
  if (f.job.demand == gpu_demand::none) return skipped(f.job.why_no_gpu);
  if (!f.group.ranks_here) return skipped("the launcher does not say how many ranks this host has");
  const std::size_t gpus = f.gpu.cuda.devices.size();
  if (gpus == 0) return skipped("no GPU was found (see gpu.cuinit)");
  const std::string observed =
      fmt::format("{} on this host, {}", counted(*f.group.ranks_here, "rank"), counted(gpus, "GPU"));
  // If only one GPU is visible, the launcher may have given each rank its own.
  const bool one_each = gpus == 1 && *f.group.ranks_here > 1;
  if (*f.group.ranks_here <= gpus || f.group.shares_gpu) return {status::ok, observed};
  return {one_each ? status::warn : status::fail, observed, "",
          one_each ? "nothing to do if the launcher gives each rank its own GPU; otherwise start fewer "
                     "ranks, or set [gpu] share = true"
                   : ""};
}

finding check_meeting_place(const facts& f) {
  const group_facts& g = f.group;
  if (!g.there) return skipped(no_rank);
  if (!g.address_trouble.empty()) return {status::fail, g.address_trouble};
  switch (g.reach) {
    case group_facts::answer::local: return {status::ok, g.address + ", on this host"};
    case group_facts::answer::answers: return {status::ok, g.address + " answers"};
    case group_facts::answer::nobody_listens:
      return {status::ok, g.address + " can be reached; rank 0 does not listen there now"};
    case group_facts::answer::unreachable: break;
  }
  return {status::fail, fmt::format("{}: {}", g.address, g.reach_trouble)};
}

finding check_secret(const facts& f) {
  const group_facts& g = f.group;
  if (!g.secret_trouble.empty()) return {status::fail, g.secret_trouble};
  if (g.has_secret) return {status::ok, "there is a secret, accessible only to its owner"};
  if (!g.there) return skipped(no_rank);
  return {status::ok, "there is no secret, and none is needed"};
}

finding check_nccl(const facts& f) {
  if (!f.group.wants_nccl) return skipped("[group] communicator does not ask for NCCL");
  if (!f.group.nccl_trouble.empty()) return {status::fail, f.group.nccl_trouble};
  return {status::ok, f.group.nccl};
}

}  // namespace penstock::doctor
