#include "common/config/cli_help.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace cairn {
namespace {

constexpr size_t kFlagColumns = 30;
constexpr size_t kTextColumns = 70;  // together a line of 100

// Lines of kTextColumns; CLI11 indents the text after a newline.
std::string Wrapped(absl::string_view text) {
  std::string lines;
  size_t columns = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const bool first = columns == 0;
    const bool fits = columns + 1 + word.size() <= kTextColumns;
    absl::StrAppend(&lines, first ? "" : fits ? " " : "\n", word);
    columns = first || !fits ? word.size() : columns + 1 + word.size();
  }
  return lines;
}

// The long name, after the short one where there is one.
std::string NameOf(const CLI::Option& option) {
  if (option.get_lnames().empty()) return option.get_name();
  const std::string name = "--" + option.get_lnames().front();
  return option.get_snames().empty() ? name
                                     : absl::StrCat("-", option.get_snames().front(), ",", name);
}

class HelpLayout : public CLI::Formatter {
 public:
  HelpLayout() { column_width(kFlagColumns); }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return absl::StrReplaceAll(Formatter::make_help(app, std::move(name), mode),
                               {{"\n\n\n", "\n\n"}});
  }
  std::string make_usage(const CLI::App* app, std::string /*name*/) const override {
    std::string usage = absl::StrCat("Usage: ", CommandPath(*app));
    if (app->get_require_subcommand_min() > 0) return usage + " COMMAND\n";
    usage += " [flags]";
    for (const CLI::Option* word :
         app->get_options([](const CLI::Option* option) { return option->get_positional(); })) {
      const std::string shown =
          word->get_type_name() + (word->get_items_expected_max() > 1 ? "..." : "");
      absl::StrAppend(&usage, " ", word->get_required() ? shown : absl::StrCat("[", shown, "]"));
    }
    return usage + "\n";
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    return positional ? option->get_name(true, false) : NameOf(*option);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    return type.empty() ? "" : " " + type;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return Wrapped(option->get_description());
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> MakeHelpLayout() { return std::make_shared<HelpLayout>(); }

std::string CommandPath(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  return parent == nullptr ? app.get_name()
                           : absl::StrCat(CommandPath(*parent), " ", app.get_name());
}

std::vector<std::string> FlagNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  }
  return names;
}

}  // namespace cairn
