// The parser's guard against deep nesting: brackets and tags recurse, so each level is counted while it is open.
#pragma once

#include "text/jinja/parser.h"

namespace choral::text::jinja {

struct Parser::Depth {
  explicit Depth(Parser* parser) : parser_(parser) { ++parser_->depth_; }
  ~Depth() { --parser_->depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  Status check() const {
    if (parser_->depth_ <= parser_->limits_.max_parse_depth) return {};
    return too_large("line {}: tags and brackets are nested more than {} deep (max_parse_depth)", parser_->current().line,
                     parser_->limits_.max_parse_depth);
  }

 private:
  Parser* parser_;
};

}  // namespace choral::text::jinja
