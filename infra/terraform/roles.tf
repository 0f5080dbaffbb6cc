locals {
  # A role that nobody may assume is not made.
  roles = setunion(keys(var.principals), keys(var.federated))
}

data "aws_iam_policy_document" "trust" {
  for_each = local.roles

  dynamic "statement" {
    for_each = contains(keys(var.principals), each.key) ? [var.principals[each.key]] : []

    content {
      actions = ["sts:AssumeRole"]

      principals {
        type        = "AWS"
        identifiers = statement.value
      }
    }
  }

  dynamic "statement" {
    for_each = contains(keys(var.federated), each.key) ? [var.federated[each.key]] : []

    content {
      actions = ["sts:AssumeRoleWithWebIdentity"]

      principals {
        type        = "Federated"
        identifiers = [statement.value.provider]
      }

      condition {
        test     = "StringEquals"
        variable = "${split("oidc-provider/", statement.value.provider)[1]}:aud"
        values   = [statement.value.audience]
      }

      condition {
        test     = "StringLike"
        variable = "${split("oidc-provider/", statement.value.provider)[1]}:sub"
        values   = statement.value.subjects
      }
    }
  }
}

resource "aws_iam_role" "store" {
  for_each = local.roles

  name               = "${var.name}-${each.key}"
  assume_role_policy = data.aws_iam_policy_document.trust[each.key].json
  tags               = var.tags
}

resource "aws_iam_role_policy" "store" {
  for_each = local.roles

  name   = "store"
  role   = aws_iam_role.store[each.key].id
  policy = local.policies[each.key]
}

resource "aws_iam_role_policy" "key" {
  for_each = var.kms_key == null ? toset([]) : local.roles

  name = "key"
  role = aws_iam_role.store[each.key].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "UseTheKey"
        Effect   = "Allow"
        Action   = each.key == "publisher" ? ["kms:Decrypt", "kms:GenerateDataKey"] : ["kms:Decrypt"]
        Resource = [var.kms_key.arn]
      },
    ]
  })
}
