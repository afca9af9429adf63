// plan: which samples a batch holds, without loading any.
#include "tools/penstock/commands.hpp"
#include "tools/penstock/dataset/planned_stream.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/verb_table.hpp"

#include <memory>

namespace penstock::cli {
namespace {

int show_plan(const place_options& o, const config& settings) {
  const auto stream = planned_stream::create(settings, std::nullopt);
  if (!stream) return refuse_with(code_of(stream.error()), stream.error(), o.as_json);
  const auto found = stream->batch(o.epoch, o.batch);
  if (!found) return refuse_with(code_of(found.error()), found.error(), o.as_json);
  const std::vector<std::string> names = stream->names_of(found->samples);
  if (o.as_json) {
    print_json("penstock.plan/1", facts_of(o, settings, *found, names));
  } else {
    list_samples(*found, names);
  }
  return exit_ok;
}

}  // namespace

void add_plan_command(verb_table& verbs) {
  const auto o = std::make_shared<place_options>();
  CLI::App& verb = verbs.add(
      {"plan",
       verb_group::look,
       "list the samples of a batch without loading them",
       "Lists the samples that a run puts into one batch, in the order of its rows, with an index and a name "
       "on each line. Nothing is loaded: the plan depends only on the config and on the dataset's list of "
       "samples. For a custom dataset, plan starts one worker, which describes it and names its samples. "
       "Samples that fail in a run are listed like the others. --rank and --world select a rank of "
       "a group; they replace [sampler] rank and world_size.",
       {{"penstock plan photos.toml --epoch 3 --batch 17", "a batch of the fourth epoch"},
        {"penstock plan photos.toml --batch 17 --rank 1 --world 8 --json | jq .samples",
         "the indices that rank 1 of 8 has in it"}}},
      [o] { return with_settings(*o, [&](const config& settings) { return show_plan(*o, settings); }); });
  add_place_options(verb, *o);
}

}  // namespace penstock::cli
