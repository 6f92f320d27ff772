// How --help looks, and the names that CLI11's table of flags and commands holds.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <vector>

namespace cairn {

// Lines of at most 100 columns: flags with their types, then their texts.
std::shared_ptr<CLI::FormatterBase> MakeHelpLayout();

// "cairnctl checkpoint list".
std::string CommandPath(const CLI::App& app);

// "--name" of every flag, without the "--noname" of switches.
std::vector<std::string> FlagNames(const CLI::App& app);

}  // namespace cairn
