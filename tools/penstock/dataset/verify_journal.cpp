#include "tools/penstock/dataset/verify_journal.hpp"

#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "runtime/dataset/file_reader.hpp"
#include "tools/penstock/chaos/batch_journal.hpp"
#include "tools/penstock/dataset/journal_check.hpp"
#include "tools/penstock/dataset/replayed_stream.hpp"
#include "tools/penstock/output.hpp"

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include <unistd.h>

namespace penstock::cli {
namespace {

using json = nlohmann::ordered_json;

constexpr std::uint64_t journal_bytes_max = std::uint64_t{1} << 36U;

result<void> check_place(const planned_stream& stream, const delivered_batch& one) {
  const epoch_extent has = stream.batches_of(one.epoch);
  if (one.sequence >= has.first && one.sequence < has.end) return {};
  return refuse(errc::dataset,
                "the journal has batch {} of epoch {}, but this config and dataset do not: that epoch has {}, "
                "counted from {}. The journal belongs to another dataset, batch size or number of ranks",
                one.sequence, one.epoch, counted(has.end - has.first, "batch", "batches"), has.first);
}

/// Loads all batches of the journal, with one session for each run of consecutive batches. `told` is called after each batch.
result<void> compare(journal_check& check, const config& settings, const planned_stream& stream,
                     const std::function<void(std::size_t done)>& told) {
  const auto& batches = check.batches();
  for (const delivered_batch& one : batches)
    if (auto ok = check_place(stream, one); !ok) return ok;
  for (std::size_t at = 0; at < batches.size();) {
    const auto first = stream.batch(batches[at].epoch, batches[at].sequence);
    if (!first) return tl::unexpected(first.error());
    const std::size_t end = check.end_of_run(at, [&](std::uint64_t epoch) { return stream.batches_of(epoch); });
    try {
      replayed_stream run(settings, *first, end - at, batches[end - 1].epoch);
      while (at < end) {
        const auto batch = run.next();
        if (!batch)
          return refuse(errc::sample, "batch {} of epoch {} could not be loaded", batches[at].sequence,
                        batches[at].epoch);
        check.take(at, {{batch->samples().begin(), batch->samples().end()}, batch->digest()});
        told(++at);
      }
    } catch (const error& e) {
      return tl::unexpected(e.as_failure());
    }
  }
  return {};
}

json facts_of(const journal_check& check, const std::vector<missing_batches>& gaps, const planned_stream& stream) {
  const auto named = [&](const auto& samples) {
    json list = json::array();
    for (const std::uint64_t sample : samples)
      list.push_back({{"sample", sample}, {"name", stream.name_of(sample)}});
    return list;
  };
  json changed = json::array();
  for (const changed_batch& one : check.changed()) {
    changed.push_back({{"epoch", one.epoch},
                       {"seq", one.sequence},
                       {"was", fmt::format("{:016x}", one.was)},
                       {"is", fmt::format("{:016x}", one.is)},
                       {"samples", one.samples},
                       {"gone", named(one.gone)},
                       {"come", named(one.come)}});
  }
  json contradictory = json::array();
  for (const delivered_batch& one : check.contradictory())
    contradictory.push_back({{"epoch", one.epoch}, {"seq", one.sequence}});
  json missing = json::array();
  for (const missing_batches& gap : gaps)
    missing.push_back({{"epoch", gap.epoch}, {"first", gap.first}, {"last", gap.last}});
  return {{"batches", check.batches().size()},
          {"changed", std::move(changed)},
          {"suspects", named(check.suspects())},
          {"repeated", check.repeated()},
          {"contradictory", check.contradictory().size()},
          {"contradictory_batches", std::move(contradictory)},
          {"missing", std::move(missing)}};
}

void tell_gaps(const journal_check& check, const std::vector<missing_batches>& gaps) {
  for (const missing_batches& gap : gaps)
    print(gap.first == gap.last
              ? fmt::format("batch {} of epoch {} is missing", gap.first, gap.epoch)
              : fmt::format("batches {} to {} of epoch {} are missing", gap.first, gap.last, gap.epoch));
  if (!gaps.empty() || check.batches().empty()) return;
  const delivered_batch& first = check.batches().front();
  const delivered_batch& last = check.batches().back();
  say(fmt::format("no batch is missing from batch {} of epoch {} to batch {} of epoch {}", first.sequence,
                  first.epoch, last.sequence, last.epoch));
}

void tell(const journal_check& check, const std::vector<missing_batches>& gaps, const planned_stream& stream) {
  const auto list = [&](std::string_view what, const auto& samples) {
    for (const std::uint64_t sample : samples)
      print(fmt::format("  {}: {}\t{}", what, sample, stream.name_of(sample)));
  };
  const std::set<std::uint64_t> suspects = check.suspects();
  for (const changed_batch& one : check.changed()) {
    print(fmt::format("epoch {}, batch {}: {:016x} in the journal, {:016x} today", one.epoch, one.sequence,
                      one.was, one.is));
    list("gone", one.gone);
    list("come", one.come);
    std::vector<std::uint64_t> here;
    for (const std::uint64_t sample : one.samples)
      if (suspects.contains(sample)) here.push_back(sample);
    list("may have changed", here);
  }
  for (const delivered_batch& one : check.contradictory())
    print(fmt::format("epoch {}, batch {}: the journal has it twice, with different samples or digests",
                      one.epoch, one.sequence));
  tell_gaps(check, gaps);
  say(fmt::format("{} of {} match the journal", check.batches().size() - check.changed().size(),
                  counted(check.batches().size(), "batch", "batches")));
  if (check.changed().size() == check.batches().size() && check.changed().size() > 1)
    say("none matches: the journal may belong to another dataset or seed");
  const std::uint64_t equal = check.repeated() - check.contradictory().size();
  if (equal > 0)
    say(fmt::format("{} in the journal more than once, with equal samples and digests; a run that was killed and resumed repeats some",
                    counted(equal, "batch is", "batches are")));
}

}  // namespace

int verify_journal(const std::string& path, const config& settings, const planned_stream& stream, bool as_json) {
  file_reader file;
  const auto refused = [&](const failure& why) {
    return refuse_with(exit_failed,
                       {why.code, fmt::format("'{}' {}", printable(path), why.message), why.os_code},
                       as_json);
  };
  const auto bytes = file.read(path, journal_bytes_max);
  if (!bytes) return refused(bytes.error());
  auto journal = read_journal({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  if (!journal) {
    journal.error().message = "cannot be used: " + journal.error().message;
    return refused(journal.error());
  }
  if (journal->batches.empty())
    return refused({errc::io, "has no batches to compare; `penstock run --sink journal:FILE` writes them", 0});
  journal_check check(journal->batches);
  const std::size_t all = check.batches().size();
  const bool shows_progress = !as_json && is_terminal(STDERR_FILENO);
  const auto compared = compare(check, settings, stream, [&](std::size_t done) {
    if (shows_progress) say_raw(fmt::format("\r{} of {}{}", done, counted(all, "batch", "batches"), done == all ? "\r\x1b[K" : ""));
  });
  if (!compared && shows_progress) say_raw("\r\x1b[K");
  if (!compared) return refuse_with(exit_failed, compared.error(), as_json);
  const std::vector<missing_batches> gaps = check.missing([&](std::uint64_t epoch) { return stream.batches_of(epoch); });
  if (as_json)
    print_json("penstock.replay-verify/1", facts_of(check, gaps, stream));
  else
    tell(check, gaps, stream);
  return check.changed().empty() && check.contradictory().empty() && gaps.empty() ? exit_ok : exit_failed;
}

}  // namespace penstock::cli
