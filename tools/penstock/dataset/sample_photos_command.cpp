// sample-photos: makes photographs to try penstock with.
#include "runtime/base/counted.hpp"
#include "runtime/base/text.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/number_option.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/verb_table.hpp"
#include "tools/sample-photos/sample_photos.hpp"

#include <nlohmann/json.hpp>

#include <memory>

namespace penstock::cli {
namespace {

struct sample_options {
  std::string folder;
  int count = 200;
  bool as_json = false;
};

int draw(const sample_options& o) {
  const auto unwritten = draw_sample_photos(o.folder, o.count);
  if (unwritten) {
    const auto why = refuse_os(errc::io, unwritten->os_code, fmt::format("writing '{}'", printable(unwritten->file.native())));
    return refuse_with(exit_failed, why.value(), o.as_json);
  }
  if (o.as_json) {
    print_json("penstock.sample-photos/1", {{"folder", o.folder}, {"photographs", o.count}});
  } else {
    say(fmt::format("{}: {}", printable(o.folder), counted(static_cast<std::uint64_t>(o.count), "photograph")));
  }
  return exit_ok;
}

}  // namespace

void add_sample_photos_command(verb_table& verbs) {
  const auto o = std::make_shared<sample_options>();
  CLI::App& verb = verbs.add({"sample-photos",
                              verb_group::look,
                              "make photographs to try penstock with",
                              "Draws JPEGs of 500 x 375 pixels, as large and as hard to decode as photographs, into four folders that are their "
                              "classes. In a folder that already has them, they are replaced by identical ones.",
                              {{"penstock sample-photos photos", "200 of them, for the examples of the documentation"},
                               {"penstock sample-photos photos 10000", "enough to measure with: 400 MB"}}},
                             [o] { return draw(*o); });
  verb.add_option("FOLDER", o->folder, "the folder to create the class folders in")->required();
  takes_whole_number(verb.add_option("COUNT", o->count, "how many")->capture_default_str(), {1, sample_photos_max});
  verb.add_flag("--json", o->as_json, "as one JSON object");
}

}  // namespace penstock::cli
