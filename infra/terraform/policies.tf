# The same files that are filled in by hand: infra/policies.
locals {
  root = var.prefix == "" ? "" : "${var.prefix}/"

  policies = {
    for role in ["publisher", "reader", "janitor"] : role => replace(replace(replace(
      file("${path.module}/../policies/${role}.json"),
      "arn:aws:", "arn:${var.partition}:"),
      "BUCKET", var.bucket),
    "PREFIX/", local.root)
  }

  # What is denied to the publisher holds for everybody else too.
  never_overwrite = [
    for statement in jsondecode(local.policies["publisher"]).Statement :
    merge(statement, { Principal = "*" }) if statement.Effect == "Deny"
  ]
}
