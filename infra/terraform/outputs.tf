output "store_url" {
  description = "What to give to --store."
  value       = trimsuffix("s3://${aws_s3_bucket.store.id}/${local.root}", "/")
}

output "role_arns" {
  description = "Role to its ARN."
  value       = { for role, made in aws_iam_role.store : role => made.arn }
}

output "policies" {
  description = "Role to its policy as JSON, for roles and users that are made elsewhere."
  value       = local.policies
}
