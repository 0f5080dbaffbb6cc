variable "bucket" {
  description = "Name of the bucket to make."
  type        = string
}

variable "prefix" {
  description = "Path of the store within the bucket, without a slash at either end; empty for the whole bucket."
  type        = string
  default     = ""

  validation {
    condition     = var.prefix == "" || can(regex("^[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*$", var.prefix))
    error_message = "The prefix is one or more parts joined by slashes, with no slash at either end."
  }
}

variable "name" {
  description = "What the names of the roles begin with."
  type        = string
  default     = "tccache"
}

variable "partition" {
  description = "First part of every ARN: aws, aws-cn or aws-us-gov."
  type        = string
  default     = "aws"
}

variable "principals" {
  description = "Role (publisher, reader or janitor) to the ARNs of the AWS principals that may assume it."
  type        = map(list(string))
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.principals), ["publisher", "reader", "janitor"])) == 0
    error_message = "The roles are publisher, reader and janitor."
  }

  validation {
    condition     = alltrue([for arns in values(var.principals) : length(arns) > 0 && !contains(arns, "*")])
    error_message = "Name who may assume the role: somebody, and not everybody."
  }
}

variable "federated" {
  description = "Role to the OIDC provider (its ARN), the audience and the subjects that may assume it; a subject may hold wildcards."
  type = map(object({
    provider = string
    audience = string
    subjects = list(string)
  }))
  default = {}

  validation {
    condition     = length(setsubtract(keys(var.federated), ["publisher", "reader", "janitor"])) == 0
    error_message = "The roles are publisher, reader and janitor."
  }

  validation {
    condition     = alltrue([for trust in values(var.federated) : length(trust.subjects) > 0 && !contains(trust.subjects, "*")])
    error_message = "Name the subjects: without, everybody with an account at the provider could assume the role."
  }
}

variable "kms_key" {
  description = "KMS key that encrypts the bucket; null for keys that S3 keeps (SSE-S3)."
  type        = object({ arn = string })
  default     = null
}

variable "versioning" {
  description = "Whether what is deleted can be had back for `noncurrent_days`."
  type        = bool
  default     = true
}

variable "noncurrent_days" {
  description = "Days after which what was deleted is gone for good."
  type        = number
  default     = 7
}

variable "incomplete_days" {
  description = "Days after which parts of an upload that never ended are thrown away."
  type        = number
  default     = 1
}

variable "tags" {
  description = "Tags of the bucket and the roles."
  type        = map(string)
  default     = {}
}
